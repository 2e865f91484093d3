//! Metrics of a program in the Prometheus text format.

use kube::{Client, Config};

pub(crate) struct Page(String);

/// Connects to a program at an address such as `127.0.0.1:8080`.
pub(crate) fn client(address: &str) -> anyhow::Result<Client> {
    Ok(Client::try_from(Config::new(format!("http://{address}").parse()?))?)
}

impl Page {
    /// Reads the metrics of the connected server.
    pub(crate) async fn read(client: &Client) -> anyhow::Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        Ok(Self(client.request_text(request).await?))
    }

    /// The sum of all series of this name whose labels contain all of `labels`, such as `verb="PUT"`.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let value = |line: &str| {
            let rest = line.strip_prefix(name)?;
            let (series, value) = rest.rsplit_once(' ')?;
            let named = series.is_empty() || series.starts_with('{');
            let wanted = named && labels.iter().all(|label| series.contains(label));
            wanted.then(|| value.parse::<f64>().ok())?
        };
        self.0.lines().filter_map(value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_series_by_name_and_labels() {
        let page = Page("# TYPE a counter\na{x=\"1\",y=\"2\"} 3\na{x=\"1\"} 4\na_b 5\na 6\n".to_owned());
        assert_eq!(page.sum("a", &[]), 13.0);
        assert_eq!(page.sum("a", &["x=\"1\""]), 7.0);
        assert_eq!(page.sum("a", &["x=\"1\"", "y=\"2\""]), 3.0);
        assert_eq!(page.sum("a_b", &[]), 5.0);
    }
}
