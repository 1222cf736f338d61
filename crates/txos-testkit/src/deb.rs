//! Small Debian packages, made on the spot.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::process::Invocation;

/// What a package is to consist of.
#[derive(Clone, Debug, Default)]
pub struct Deb<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
    /// More lines of its control file, each with its end of line.
    pub fields: &'a str,
    /// Paths (absolute) and contents of its files.
    pub files: &'a [(&'a str, &'a str)],
    /// Names and texts of its maintainer scripts.
    pub scripts: &'a [(&'a str, &'a str)],
}

impl Deb<'_> {
    /// Builds it in a directory; gives the file.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn build(&self, dir: &Path) -> PathBuf {
        let root = dir.join(format!("{}-{}", self.name, self.version));
        let control = root.join("DEBIAN");
        std::fs::create_dir_all(&control).expect("making a package");
        let text = format!(
            "Package: {}\nVersion: {}\nArchitecture: all\n\
             Maintainer: Nobody <nobody@example.invalid>\n{}Description: made by a test\n",
            self.name, self.version, self.fields
        );
        std::fs::write(control.join("control"), text).expect("making a package");
        for (path, content) in self.files {
            let path = root.join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap_or(&root)).expect("making a package");
            std::fs::write(path, content).expect("making a package");
        }
        for (name, script) in self.scripts {
            let path = control.join(name);
            std::fs::write(&path, format!("#!/bin/sh\nset -e\n{script}\n")).expect("a script");
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("a script");
        }
        let file = dir.join(format!("{}_{}.deb", self.name, self.version));
        let _ = Invocation::new("dpkg-deb")
            .args(["--root-owner-group", "--build"])
            .args([&root, &file])
            .run()
            .expect(0);
        file
    }
}
