//! `txos review --html`: what a transaction changes as one page, to be looked at in a browser or sent to someone.
//!
//! # Invariants
//!
//! - The page needs nothing else, and asks for nothing: its policy (`Content-Security-Policy`) forbids every
//!   script and every request.
//! - Names and contents are from others, and may be hostile. Every one of them passes [`text`], and none stands
//!   anywhere but between two tags.

use std::io::{self, Write};
use std::path::Path;

use txos_engine::changeset::{Entry, Status};
use txos_engine::object::FileKind;
use txos_engine::show::{quoted, visible};
use txos_engine::store::Meta;

use crate::changes::Counts;
use crate::log::{commands, date};
use crate::overview::{Item, line_counts};
use crate::patch::{Difference, Reader, difference, write_hunks};
use crate::style::Paint;
use crate::tx_status::TxStatus;

/// Differences take no more room than this; of the rest the page has sizes.
const DIFFS_MAX: usize = 32 << 20;
/// A difference of more lines than this is closed at first.
const OPEN_MAX: usize = 400;

const STYLE: &str = include_str!("html/style.css");

/// Text of others, or of ours, between two tags.
fn text(of: &str) -> String {
    let mut out = String::with_capacity(of.len());
    for c in of.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Writes the page.
pub fn write(
    out: &mut dyn Write,
    meta: &Meta,
    status: TxStatus,
    items: &[Item<'_>],
) -> io::Result<()> {
    let id = meta.id;
    let name = meta.name.as_deref().map(|name| visible(name.as_bytes()));
    let title = match &name {
        Some(name) => format!("{name} ({id})"),
        None => id.to_string(),
    };
    let title = text(&title.replace('\n', " "));
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>txos: {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    )?;
    write_head(out, meta, status, items, &title)?;
    let numbered: Vec<(usize, &Item<'_>)> = items.iter().enumerate().collect();
    let first: Vec<_> = numbered.iter().filter(|(_, item)| item.first).copied().collect();
    writeln!(out, "<main>")?;
    if !first.is_empty() {
        writeln!(
            out,
            "<section class=\"first\"><h2>Look at first <small>deletions, replacements and rights</small></h2>"
        )?;
        first.iter().try_for_each(|(n, item)| write_row(out, *n, item, &item.name()))?;
        writeln!(out, "</section>")?;
    }
    writeln!(out, "<section><h2>Tree</h2>")?;
    write_tree(out, &numbered, Path::new("/"))?;
    writeln!(out, "</section>\n<section><h2>Differences</h2>")?;
    let mut room = DIFFS_MAX;
    // In the same order: what matters first.
    let rest = numbered.iter().filter(|(_, item)| !item.first);
    for (n, item) in first.iter().chain(rest) {
        write_difference(out, *n, item, &mut room)?;
    }
    writeln!(out, "</section>\n</main>\n</body>\n</html>")
}

fn write_head(
    out: &mut dyn Write,
    meta: &Meta,
    status: TxStatus,
    items: &[Item<'_>],
    title: &str,
) -> io::Result<()> {
    let id = meta.id;
    writeln!(out, "<header>\n<h1>{title} <span class=\"state\">{status}</span></h1>")?;
    for command in commands(meta) {
        writeln!(out, "<p><code class=\"command\">{}</code></p>", text(&command))?;
    }
    if let Some(message) = &meta.message {
        writeln!(out, "<p class=\"message\">{}</p>", text(&visible(message.as_bytes())))?;
    }
    let counts = Counts::of(items.iter().map(|item| item.entry));
    let lines = items
        .iter()
        .filter_map(|item| item.lines)
        .fold((0, 0), |(less, more), (l, m)| (less + l, more + m));
    writeln!(out, "<dl>")?;
    for (term, what) in [
        ("Transaction", id.to_string()),
        ("Date", date(meta.ended.unwrap_or(meta.begun))),
        ("Directory", quoted(&meta.directory)),
        ("Changes", counts.to_string()),
    ] {
        writeln!(out, "<div><dt>{term}</dt><dd>{}</dd></div>", text(&what))?;
    }
    if lines != (0, 0) {
        writeln!(out, "<div><dt>Lines</dt><dd>{}</dd></div>", lines_of(lines))?;
    }
    writeln!(out, "</dl>")?;
    if status == TxStatus::Pending {
        writeln!(
            out,
            "<p class=\"next\">Nothing of this is published yet: <code>txos commit {id}</code> publishes it, \
             <code>txos abort {id}</code> discards it.</p>"
        )?;
    }
    writeln!(out, "</header>")
}

fn lines_of((less, more): (usize, usize)) -> String {
    line_counts((less, more))
        .split(' ')
        .map(|count| {
            let class = if count.starts_with('+') { "more" } else { "less" };
            format!("<span class=\"{class}\">{count}</span>")
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn class(status: Status) -> &'static str {
    match status {
        Status::Added => "added",
        Status::Deleted => "deleted",
        Status::Renamed => "renamed",
        Status::Modified | Status::Attributes | Status::TypeChanged => "changed",
    }
}

fn badge(status: Status) -> String {
    let word = match status {
        Status::Added => "added",
        Status::Modified => "modified",
        Status::Attributes => "attributes",
        Status::TypeChanged => "type changed",
        Status::Renamed => "moved",
        Status::Deleted => "deleted",
    };
    format!("<b class=\"{}\" title=\"{word}\">{}</b>", class(status), status.letter())
}

/// A change on one line; its name leads to the differences.
fn write_row(out: &mut dyn Write, n: usize, item: &Item<'_>, name: &str) -> io::Result<()> {
    writeln!(
        out,
        "<div class=\"row\">{}<a href=\"#c{n}\"><bdi>{}</bdi></a><span>{}</span></div>",
        badge(item.entry.status),
        text(name),
        text(&item.text())
    )
}

/// What is changed below a directory: what is in it, and its own directories.
fn write_tree(out: &mut dyn Write, below: &[(usize, &Item<'_>)], top: &Path) -> io::Result<()> {
    // Directories within others, each with how many of its levels are open: no recursion, however deep they are.
    let mut open: Vec<std::path::PathBuf> = vec![top.to_owned()];
    for (at, (n, item)) in below.iter().enumerate() {
        let path = &item.entry.path;
        let parent = path.parent().unwrap_or(top);
        while open.len() > 1 && !open.last().is_some_and(|dir| path.starts_with(dir)) {
            open.pop();
            writeln!(out, "</details>")?;
        }
        let here = open.last().cloned().unwrap_or_default();
        if parent != here {
            // Directories of which nothing else is changed share a line.
            let shown = parent.strip_prefix(&here).unwrap_or(parent);
            writeln!(
                out,
                "<details open><summary><bdi>{}/</bdi></summary>",
                text(&quoted(if here == top { parent } else { shown }))
            )?;
            open.push(parent.to_owned());
        }
        let is_dir = item.entry.new.or(item.entry.old).is_some_and(|s| s.kind == FileKind::Dir);
        let name = path.file_name().map_or("/".into(), |name| quoted(Path::new(name)));
        let within =
            is_dir && below.get(at + 1).is_some_and(|(_, next)| next.entry.path.starts_with(path));
        if within {
            let many = below.get(at + 1..).unwrap_or_default();
            let many = many.iter().take_while(|(_, i)| i.entry.path.starts_with(path)).count();
            let opened = if many > 60 { "" } else { " open" };
            writeln!(
                out,
                "<details{opened}><summary>{}<a href=\"#c{n}\"><bdi>{}/</bdi></a> <span>{} · {many} below</span></summary>",
                badge(item.entry.status),
                text(&name),
                text(&item.text())
            )?;
            open.push(path.clone());
        } else {
            let slash = if is_dir { "/" } else { "" };
            write_row(out, *n, item, &format!("{name}{slash}"))?;
        }
    }
    for _ in 1..open.len() {
        writeln!(out, "</details>")?;
    }
    Ok(())
}

fn write_difference(
    out: &mut dyn Write,
    n: usize,
    item: &Item<'_>,
    room: &mut usize,
) -> io::Result<()> {
    let entry: &Entry = item.entry;
    let difference = match difference(entry) {
        Difference::Text { old, new } if old.len() + new.len() <= *room => {
            *room -= old.len() + new.len();
            Difference::Text { old, new }
        }
        Difference::Text { .. } => {
            Difference::LeftOut("the page would be too large; `txos diff` shows it".into())
        }
        other => other,
    };
    let lines = item.lines.map_or(0, |(less, more)| less + more);
    let open = if lines <= OPEN_MAX { " open" } else { "" };
    writeln!(
        out,
        "<details class=\"change\" id=\"c{n}\"{open}><summary>{}<bdi>{}</bdi> <span>{}</span></summary>",
        badge(entry.status),
        text(&item.name()),
        text(&item.text())
    )?;
    match difference {
        Difference::None => writeln!(out, "<p class=\"none\">No content differs.</p>")?,
        Difference::Binary => writeln!(out, "<p class=\"none\">Binary content.</p>")?,
        Difference::LeftOut(why) => {
            writeln!(out, "<p class=\"none\">Content left out: {}.</p>", text(&why))?;
        }
        Difference::Text { old, new } => write_lines(out, &old, &new)?,
    }
    writeln!(out, "</details>")
}

/// The hunks of two texts, a row for each line, with the numbers of both sides.
fn write_lines(out: &mut dyn Write, old: &[u8], new: &[u8]) -> io::Result<()> {
    let mut hunks = Vec::new();
    write_hunks(&mut hunks, old, new, Paint::default(), Reader::Person)?;
    let hunks = String::from_utf8_lossy(&hunks);
    writeln!(out, "<div class=\"scroll\"><table>")?;
    let (mut before, mut after) = (0, 0);
    for line in hunks.split_terminator('\n') {
        if let Some(place) = line.strip_prefix("@@ ") {
            let start = |sign: char| {
                let word = place.split(' ').find_map(|word| word.strip_prefix(sign))?;
                let (start, length) = word.split_once(',').unwrap_or((word, "1"));
                // An empty range names the line before it.
                Some(start.parse::<usize>().ok()? + usize::from(length == "0"))
            };
            (before, after) = (start('-').unwrap_or(1), start('+').unwrap_or(1));
            writeln!(out, "<tr class=\"hunk\"><td></td><td></td><td>{}</td></tr>", text(line))?;
            continue;
        }
        let (class, old_number, new_number) = match line.chars().next() {
            Some('+') => ("more", None, Some(&mut after)),
            Some('-') => ("less", Some(&mut before), None),
            Some('\\') => ("note", None, None),
            _ => ("", Some(&mut before), Some(&mut after)),
        };
        let number = |counter: Option<&mut usize>| match counter {
            Some(counter) => {
                *counter += 1;
                (*counter - 1).to_string()
            }
            None => String::new(),
        };
        let (old_number, new_number) = (number(old_number), number(new_number));
        writeln!(
            out,
            "<tr class=\"{class}\"><td>{old_number}</td><td>{new_number}</td><td>{}</td></tr>",
            text(line)
        )?;
    }
    writeln!(out, "</table></div>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::samples::{entry, side};
    use crate::overview::items;
    use crate::tx_status::sample;

    /// Everything that others may have written, as a tag.
    const HOSTILE: &str =
        "\"'></title></style><script>document.title='owned'</script><img src=x onerror=1>&";

    fn page(entries: &[Entry], meta: &Meta) -> String {
        let mut out = Vec::new();
        write(&mut out, meta, TxStatus::Pending, &items(entries)).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The tags of a page.
    fn tags(page: &str) -> Vec<&str> {
        page.split('<').skip(1).map(|tag| tag.split_once('>').expect("a tag that ends").0).collect()
    }

    #[test]
    fn nothing_of_others_is_a_tag() {
        let dir = std::env::temp_dir().join(format!("txos-html-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("x"), format!("{HOSTILE}\n{HOSTILE}\n")).unwrap();
        let path = format!("/a{HOSTILE}/b{HOSTILE}");
        let entries = [
            entry(Status::Deleted, &format!("/a{HOSTILE}"), Some(side(1)), None),
            Entry {
                new_content: Some(dir.join("x")),
                ..entry(Status::Added, &path, None, Some(side(9)))
            },
        ];
        let meta = Meta {
            name: Some(HOSTILE.into()),
            message: Some(HOSTILE.into()),
            command: vec![HOSTILE.into()],
            directory: HOSTILE.into(),
            ..sample()
        };
        let page = page(&entries, &meta);
        let plain = |tag: &&str| {
            let name = tag.trim_start_matches('/').split(' ').next().unwrap();
            let known = [
                "!DOCTYPE", "html", "head", "meta", "title", "style", "body", "header", "h1", "h2",
                "p", "code", "dl", "div", "dt", "dd", "main", "section", "small", "b", "a", "bdi",
                "span", "details", "summary", "table", "tr", "td",
            ];
            known.contains(&name) && !tag.contains("owned") && !tag.contains("onerror")
        };
        let odd: Vec<&str> = tags(&page).into_iter().filter(|tag| !plain(tag)).collect();
        assert!(odd.is_empty(), "{odd:?}");
        for one in ["title>", "style>", "details"] {
            let (opened, closed) = (
                page.matches(&format!("<{one}")).count(),
                page.matches(&format!("</{one}")).count(),
            );
            assert_eq!(opened, closed, "{one}");
        }
        assert!(page.contains("script-src") || page.contains("default-src 'none'"));
        assert!(page.matches("&lt;script&gt;").count() >= 8, "{page}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn lines_have_numbers() {
        let mut out = Vec::new();
        write_lines(&mut out, b"1\n2\n3\n", b"1\n2b\n3\n4\n").unwrap();
        let page = String::from_utf8(out).unwrap();
        for row in [
            "<tr class=\"\"><td>1</td><td>1</td><td> 1</td></tr>",
            "<tr class=\"less\"><td>2</td><td></td><td>-2</td></tr>",
            "<tr class=\"more\"><td></td><td>2</td><td>+2b</td></tr>",
            "<tr class=\"\"><td>3</td><td>3</td><td> 3</td></tr>",
            "<tr class=\"more\"><td></td><td>4</td><td>+4</td></tr>",
        ] {
            assert!(page.contains(row), "{row} in {page}");
        }
        let mut out = Vec::new();
        write_lines(&mut out, b"", b"x").unwrap();
        let page = String::from_utf8(out).unwrap();
        assert!(page.contains("<td></td><td>1</td><td>+x</td>"), "{page}");
        assert!(page.contains("class=\"note\"><td></td><td></td><td>\\ No newline"), "{page}");
    }

    #[test]
    fn a_tree_opens_and_closes() {
        let paths = ["/a/b/c/x", "/a/b/y", "/a/z", "/d/e/f/g", "/top"];
        let entries: Vec<Entry> = paths
            .iter()
            .map(|path| entry(Status::Modified, path, Some(side(1)), Some(side(2))))
            .collect();
        let page = page(&entries, &sample());
        assert_eq!(page.matches("<details").count(), page.matches("</details>").count());
        let tree = page.split("<h2>Tree</h2>").nth(1).unwrap().split("<h2>").next().unwrap();
        for path in ["/a/b/c/", "/d/e/f/", "<bdi>x<", "<bdi>top<"] {
            assert!(tree.contains(path), "{path} in {tree}");
        }
    }
}
