//! Runs that are done, in a file of the report: an evaluation that was interrupted goes on from there.
//!
//! Its first line says of which images and machine the runs are. Each line after it is one run; a last line that is cut off is a run
//! that is not done.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use crate::experiment::Result as Figures;

#[derive(serde::Serialize, serde::Deserialize)]
struct Head {
    of: u64,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Line {
    run: String,
    figures: Figures,
}

/// Runs that are done.
#[derive(Debug, Default)]
pub struct Done {
    known: BTreeMap<String, Figures>,
    file: Option<Mutex<File>>,
}

impl Done {
    /// Opens the file. What it has is taken if the evaluation is to go on, and if it is of the same images and machine.
    ///
    /// # Errors
    /// If it can't be read or written, or is of something else.
    pub fn open(path: &Path, resume: bool, of: u64) -> Result<Done, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        let mut known = BTreeMap::new();
        // Where nothing has begun, everything is to be done.
        if resume && path.exists() {
            let text = std::fs::read_to_string(path).map_err(failed)?;
            let mut lines = text.lines();
            let head = lines.next().and_then(|l| serde_json::from_str::<Head>(l).ok());
            if head.is_none_or(|head| head.of != of) {
                return Err(format!(
                    "{}: these runs are of other images, another machine or other options; without --resume they are \
                     replaced",
                    path.display()
                ));
            }
            let lines = lines.filter_map(|l| serde_json::from_str::<Line>(l).ok());
            known.extend(lines.map(|line| (line.run, line.figures)));
        }
        let mut done = Done { known, file: None };
        let mut file = File::create(path).map_err(failed)?;
        let head = serde_json::to_string(&Head { of }).map_err(|e| e.to_string())?;
        writeln!(file, "{head}").map_err(failed)?;
        done.file = Some(Mutex::new(file));
        for (run, figures) in &done.known {
            done.add(run, figures)?;
        }
        Ok(done)
    }

    /// A run that is known.
    pub fn get(&self, run: &str) -> Option<Figures> {
        self.known.get(run).cloned()
    }

    /// Writes a run.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn add(&self, run: &str, figures: &Figures) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let line = Line { run: run.to_owned(), figures: figures.clone() };
        let text = serde_json::to_string(&line).map_err(|e| e.to_string())?;
        let mut file = file.lock().map_err(|e| e.to_string())?;
        writeln!(file, "{text}").map_err(|e| format!("runs.jsonl: {e}"))
    }
}
