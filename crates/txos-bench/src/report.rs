//! A report as one page, as data, and as text.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use pulldown_cmark::{Options, Parser, html};
use serde::Serialize;

use crate::figure::Section;

/// Everything of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this format.
    pub format: u32,
    /// The machine, the kernel, the versions, the load; a line each, in Markdown.
    pub conditions: Vec<String>,
    /// What was measured.
    pub sections: Vec<Section>,
    /// What could not be measured, and why.
    pub missing: Vec<String>,
}

/// The format that this program writes.
pub const FORMAT: u32 = 1;

const HOW: &str = "\
Every figure was measured side by side with what it is compared with, by turns within one run, and is the \
median of the multiples of all rounds; in parentheses their spread. A durable run is compared with a native \
one that is followed by `syncfs`. \"Papers\" is what TxOS reached against its own Linux \
(Porter et al., 2009 to 2012), as a multiple of the same kind. Where we lose, the row stands like the others.";

impl Report {
    /// Writes `report.json`, `report.md` and `index.html` into a directory.
    ///
    /// # Errors
    /// Which file could not be written, and why.
    pub fn write(&self, dir: &Path) -> Result<(), String> {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let json = serde_json::to_string_pretty(self).map_err(|e| format!("report.json: {e}"))?;
        let page = self.page();
        for (name, text) in
            [("report.json", json), ("report.md", self.text()), ("index.html", page)]
        {
            let path = dir.join(name);
            fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(())
    }

    fn head(&self) -> String {
        let lines: Vec<String> = self.conditions.iter().map(|l| format!("- {l}")).collect();
        format!("{}\n\n{HOW}\n", lines.join("\n"))
    }

    fn tail(&self) -> String {
        if self.missing.is_empty() {
            return String::new();
        }
        let lines: Vec<String> = self.missing.iter().map(|l| format!("- {l}")).collect();
        format!("## Not measured\n\n{}\n", lines.join("\n"))
    }

    /// As Markdown.
    pub fn text(&self) -> String {
        let mut text = format!("# What transactions cost\n\n{}", self.head());
        for section in &self.sections {
            let _ = write!(text, "\n## {}\n\n{}", section.title, section.markdown());
        }
        format!("{text}\n{}", self.tail())
    }

    /// As one page that needs nothing else.
    pub fn page(&self) -> String {
        let mut body = format!("<h1>What transactions cost</h1>\n{}", rendered(&self.head()));
        body.push_str("<nav>");
        for section in &self.sections {
            let _ = write!(body, "<a href=\"#{}\">{}</a> ", section.name, plain(&section.title));
        }
        body.push_str("</nav>\n");
        for section in &self.sections {
            let _ = writeln!(
                body,
                "<section id=\"{}\"><h2>{}</h2>",
                section.name,
                plain(&section.title)
            );
            for picture in section.chart().map(|c| c.svg()).iter().chain(&section.pictures) {
                let _ = writeln!(body, "<figure>{picture}</figure>");
            }
            let _ = writeln!(body, "{}</section>", rendered(&section.markdown()));
        }
        body.push_str(&rendered(&self.tail()));
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\">\
             <title>TxOS: what transactions cost</title>\n<style>{STYLE}</style></head>\n\
             <body>\n{body}</body></html>\n"
        )
    }
}

const STYLE: &str = "\
body{font:15px/1.5 sans-serif;color:#222;max-width:72rem;margin:2rem auto;padding:0 1rem}\
h2{margin-top:3rem;border-bottom:1px solid #ddd}\
nav a{margin-right:1rem}\
figure{margin:1rem 0;overflow-x:auto}svg{max-width:100%;height:auto}\
table{border-collapse:collapse;display:block;overflow-x:auto;margin:1rem 0}\
th,td{border:1px solid #ddd;padding:.25rem .6rem;text-align:right;font-variant-numeric:tabular-nums}\
th{background:#f5f5f5}th:first-child,td:first-child{text-align:left}\
strong{color:#b03000}code{background:#f3f3f3;padding:0 .2em}";

fn rendered(markdown: &str) -> String {
    let mut page = String::new();
    html::push_html(&mut page, Parser::new_ext(markdown, Options::ENABLE_TABLES));
    page
}

fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Figure, Unit};

    fn report() -> Report {
        let figure = Figure {
            place: "ext4".into(),
            what: "`make`".into(),
            subject: "txos run".into(),
            unit: Unit::Seconds,
            base: vec![1.0],
            values: vec![2.0],
            papers: None,
            asked: None,
        };
        let section = Section {
            name: "builds".into(),
            title: "Builds & more".into(),
            base: "native".into(),
            figures: vec![figure],
            ..Section::default()
        };
        Report {
            format: FORMAT,
            conditions: vec!["Linux".into()],
            sections: vec![section],
            missing: vec!["try: no checkout was given".into()],
        }
    }

    #[test]
    fn a_page_needs_nothing_else() {
        let page = report().page();
        assert!(page.contains("<td>2.00× (2.00× … 2.00×)</td>"), "{page}");
        assert!(page.contains("Builds &amp; more") && page.contains("<svg"), "{page}");
        let away = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!away.contains("http") && !away.contains("src="), "{page}");
        assert!(page.contains("no checkout was given"), "{page}");
    }

    #[test]
    fn data_can_be_read_back() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["sections"][0]["figures"][0]["values"][0], 2.0);
        assert_eq!(json["format"], FORMAT);
    }
}
