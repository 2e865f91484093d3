//! Bar charts as SVG. One file serves light and dark pages, because it has its own background.

use std::fmt::Write;

use testbed::figures::{Figures, Summary, number};

const WIDTH: f64 = 760.0;
/// Left edge of the bars, and length of the longest one.
const LEFT: f64 = 380.0;
const LONGEST: f64 = 300.0;
const ROW: f64 = 24.0;
const TITLE: f64 = 34.0;

const STYLE: &str = "\
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600 }
.back { fill: #ffffff } .bar { fill: #8c959f } .ours { fill: #0969da } .range { stroke: #1f2328; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .back { fill: #161b22 } .bar { fill: #6e7681 }
.ours { fill: #4493f8 } .range { stroke: #e6edf3 } }";

/// Draws a panel for each quantity. The bars are medians; the lines span from the lowest to the highest value.
pub(super) fn svg(figures: &Figures, quantities: &[&str]) -> String {
    let (mut body, mut top) = (String::new(), 0.0);
    for quantity in quantities {
        top = panel(&mut body, top, figures, quantity);
    }
    let height = top + 10.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\">\n<title>{}</title>\n<style>{STYLE}</style>\n<rect class=\"back\" width=\"{WIDTH}\" \
         height=\"{height}\" rx=\"6\"/>\n{body}</svg>\n",
        escape(&quantities.join("; "))
    )
}

/// Draws a panel, and returns the top of the next one.
fn panel(body: &mut String, top: f64, figures: &Figures, quantity: &str) -> f64 {
    let rows: Vec<(&str, Summary)> =
        figures.rows.iter().filter_map(|row| Some((row.name.as_str(), row.summary(quantity)?))).collect();
    let most = rows.iter().map(|(_, summary)| summary.most).fold(f64::MIN_POSITIVE, f64::max);
    let scale = |value: f64| LONGEST * value / most;
    // A String never fails.
    let _ = writeln!(body, "<text class=\"title\" x=\"14\" y=\"{}\">{}</text>", top + 22.0, escape(quantity));
    for (at, (name, summary)) in rows.iter().enumerate() {
        let y = top + TITLE + ROW * at as f64;
        let class = if is_ours(name) { "ours" } else { "bar" };
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{}\" width=\"{:.1}\" height=\"14\"/>",
            LEFT - 8.0,
            y + 13.0,
            escape(name),
            y + 2.0,
            scale(summary.median),
        );
        if summary.least < summary.most {
            let [from, to] = [summary.least, summary.most].map(|value| LEFT + scale(value));
            let middle = y + 9.0;
            let _ = writeln!(body, "<path class=\"range\" d=\"M{from:.1} {middle}H{to:.1}\"/>");
        }
        let end = LEFT + scale(summary.most) + 8.0;
        let _ = writeln!(body, "<text x=\"{end:.1}\" y=\"{}\">{}</text>", y + 13.0, number(summary.median));
    }
    top + TITLE + ROW * rows.len() as f64
}

fn is_ours(name: &str) -> bool {
    ["kube-provisioner", "csi-provisioner", "nfs-provisioner", "hostPath"].iter().any(|ours| name.starts_with(ours))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_ranges_are_to_scale() {
        let mut figures = Figures::default();
        for (name, value) in [("kube-provisioner", 100.0), ("kube-provisioner", 200.0), ("Go <library>", 50.0)] {
            figures.record(name, "volumes/s", value);
        }
        let svg = svg(&figures, &["volumes/s"]);
        for part in [
            "class=\"ours\" x=\"380\" y=\"36\" width=\"225.0\"",
            "d=\"M530.0 43H680.0\"",
            "class=\"bar\" x=\"380\" y=\"60\" width=\"75.0\"",
            "Go &lt;library>",
        ] {
            assert!(svg.contains(part), "{part} is missing in {svg}");
        }
    }
}
