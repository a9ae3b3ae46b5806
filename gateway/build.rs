//! Embeds the console's files, as `make console` leaves them in `assets/`. Without them the program serves a page that says so.

use std::{
    env, error,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

fn main() -> Result<(), Box<dyn error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=assets");
    let (top, out) = (PathBuf::from(env::var("CARGO_MANIFEST_DIR")?), PathBuf::from(env::var("OUT_DIR")?));
    let folder = top.join("assets/console");
    let mut files = Vec::new();
    collect(&folder, &folder, &mut files)?;
    files.sort();
    let mut table = String::from("pub(super) const FILES: &[File] = &[\n");
    for (index, name) in files.iter().enumerate() {
        // Copied, so that another build of the console does not change what this one compiles.
        let bytes = fs::read(folder.join(name))?;
        let (plain, packed) = (out.join(format!("{index}.plain")), out.join(format!("{index}.gz")));
        fs::write(&packed, gzip(&bytes)?)?;
        fs::write(&plain, &bytes)?;
        writeln!(
            table,
            "File {{ path: {name:?}, plain: include_bytes!({plain:?}), gzip: include_bytes!({packed:?}) }},"
        )?;
    }
    table.push_str("];\n");
    fs::write(out.join("files.rs"), table)?;
    Ok(())
}

/// Paths of all files below `folder`, relative to `top`.
fn collect(top: &Path, folder: &Path, files: &mut Vec<String>) -> Result<(), Box<dyn error::Error>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(top, &path, files)?;
        } else {
            files.push(path.strip_prefix(top)?.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>, Box<dyn error::Error>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}
