//! The simulated COSI driver.

mod driver;
