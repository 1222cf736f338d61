//! Manual pages, made from the command line's own definition: `txos man DIR`.

use std::fs;
use std::io::Write;
use std::path::Path;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::exit::Failure;
use crate::help::{ENVIRONMENT, FILES, RUN_STATUSES, command};

/// Writes `txos.1` and a page for every command, and every command of a command.
pub fn write(dir: &Path) -> Result<u8, Failure> {
    fs::create_dir_all(dir).map_err(|e| Failure::new(format!("{}: {e}", dir.display())))?;
    for (name, page) in pages()? {
        let path = dir.join(name);
        fs::File::create(&path)
            .and_then(|mut file| file.write_all(&page))
            .map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
    }
    Ok(0)
}

/// Every page: file name and text.
fn pages() -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut root = command().disable_help_subcommand(true);
    root.build();
    let version = root.get_version().unwrap_or_default().to_owned();
    let visible = below(&root);
    let names: Vec<String> =
        visible.iter().map(|c| c.get_display_name().unwrap_or_default().to_owned()).collect();
    let mut pages = Vec::new();
    for page in std::iter::once(root).chain(visible) {
        let own = page.get_display_name().unwrap_or_else(|| page.get_name()).to_owned();
        let is_root = own == "txos";
        let has_commands = page.has_subcommands();
        let has_statuses = is_root || own == "txos-run";
        let man = Man::new(page).source(format!("txos {version}")).manual("TxOS");
        let mut text = Vec::new();
        man.render_title(&mut text)?;
        man.render_name_section(&mut text)?;
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        man.render_options_section(&mut text)?;
        if has_commands {
            man.render_subcommands_section(&mut text)?;
        }
        if has_statuses {
            section("EXIT STATUS", &RUN_STATUSES).to_writer(&mut text)?;
        }
        section("ENVIRONMENT", &ENVIRONMENT).to_writer(&mut text)?;
        section("FILES", &FILES).to_writer(&mut text)?;
        see_also(&own, &names).to_writer(&mut text)?;
        pages.push((man.get_filename(), text));
    }
    Ok(pages)
}

/// The commands below one, each followed by its own.
fn below(command: &clap::Command) -> Vec<clap::Command> {
    let visible = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    visible.flat_map(|c| std::iter::once(c.clone()).chain(below(c))).collect()
}

fn section(heading: &str, rows: &[(&str, &str)]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    for (left, right) in rows {
        roff.control("TP", []).text([bold(*left)]).text([roman(*right)]);
    }
    roff
}

fn see_also(own: &str, names: &[String]) -> Roff {
    let others = std::iter::once("txos").chain(names.iter().map(String::as_str));
    let list: Vec<String> = others.filter(|n| *n != own).map(|n| format!("{n}(1)")).collect();
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]).text([roman(list.join(", "))]);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_for_every_command() {
        let pages = pages().unwrap();
        let mut root = command();
        root.build();
        let commands = below(&root);
        assert_eq!(pages.len(), commands.len() + 1);
        assert!(pages.iter().any(|(name, _)| name == "txos-policy-set.1"));
        assert!(pages.iter().any(|(name, _)| name == "txos.1"));
        let (_, run) = pages.iter().find(|(name, _)| name == "txos-run.1").unwrap();
        let run = String::from_utf8(run.clone()).unwrap();
        for heading in ["NAME", "SYNOPSIS", "OPTIONS", "\"EXIT STATUS\"", "\"SEE ALSO\""] {
            assert!(run.contains(&format!(".SH {heading}")), "{heading}\n{run}");
        }
    }
}
