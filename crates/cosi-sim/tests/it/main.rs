//! Tests of the simulated COSI driver.

mod driver;
