//! Programs by image: a table, because there is no registry to pull from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Programs by image name.
#[derive(Clone, Debug, Default)]
pub struct Images(BTreeMap<String, PathBuf>);

impl Images {
    /// A table from pairs of image and program.
    pub fn new(pairs: impl IntoIterator<Item = (String, PathBuf)>) -> Self {
        Self(pairs.into_iter().collect())
    }

    /// Adds an entry `IMAGE=PATH`, as a command line gives it.
    ///
    /// # Errors
    /// A pair without `=`, or with an empty side.
    pub fn add(&mut self, pair: &str) -> anyhow::Result<()> {
        match pair.split_once('=') {
            Some((image, path)) if !image.is_empty() && !path.is_empty() => {
                self.0.insert(image.to_owned(), PathBuf::from(path));
                Ok(())
            }
            _ => anyhow::bail!("{pair:?} is not IMAGE=PATH"),
        }
    }

    /// The program of an image. A tag or digest that is not in the table is left out: `a:1` finds `a`.
    pub fn program(&self, image: &str) -> Option<&Path> {
        let name = image.split('@').next().unwrap_or(image);
        let untagged = match name.rsplit_once(':') {
            Some((before, tag)) if !tag.contains('/') => before,
            _ => name,
        };
        [image, name, untagged].iter().find_map(|key| self.0.get(*key)).map(PathBuf::as_path)
    }

    /// Images in the form of a Node's status.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_found_with_and_without_its_tag() {
        let mut images = Images::default();
        images.add("freehold=/bin/a").unwrap();
        images.add("host:5000/b:1=/bin/b").unwrap();
        let rows = [
            ("freehold", Some("/bin/a")),
            ("freehold:v1", Some("/bin/a")),
            ("freehold@sha256:00", Some("/bin/a")),
            ("host:5000/b:1", Some("/bin/b")),
            ("host:5000/b", None),
            ("other", None),
        ];
        for (image, program) in rows {
            assert_eq!(images.program(image), program.map(Path::new), "{image}");
        }
        for bad in ["", "a", "=b", "a="] {
            assert!(images.add(bad).is_err(), "{bad:?}");
        }
    }
}
