//! Asks the linker for a program that takes less memory, where this machine's linker and C library know how.

use std::{
    env, error,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

fn main() -> Result<(), Box<dyn error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=functions.gz");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let here = env::var("TARGET") == env::var("HOST");
    if !is("PROFILE", "release") || !is("CARGO_CFG_TARGET_OS", "linux") || !here {
        return Ok(());
    }
    let folder = PathBuf::from(env::var("OUT_DIR")?);
    let order = folder.join("functions");
    io::copy(&mut flate2::read::GzDecoder::new(File::open("functions.gz")?), &mut File::create(&order)?)?;
    // Relocations of pointers into the program itself, packed into bits: each start reads all of them.
    let packed = "-Wl,-z,pack-relative-relocs".to_owned();
    // What runs at a start lies together. Linux maps what lies around each page that is touched.
    let ordered = format!("-Wl,--symbol-ordering-file={},--no-warn-symbol-ordering", order.display());
    for flag in [packed, ordered].iter().filter(|flag| works(&folder, flag)) {
        println!("cargo::rustc-link-arg-bins={flag}");
    }
    Ok(())
}

/// Whether a program that is linked so starts here.
fn works(folder: &Path, flag: &str) -> bool {
    let Ok(rustc) = env::var("RUSTC") else { return false };
    let program = folder.join("probe");
    let mut compiler = Command::new(rustc);
    compiler.args(["--crate-name", "probe", "-C", &format!("link-arg={flag}"), "-o"]).arg(&program).arg("-");
    let built = compiler.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let built = built.and_then(|mut compiler| {
        if let Some(mut source) = compiler.stdin.take() {
            source.write_all(b"fn main() {}")?;
        }
        compiler.wait()
    });
    built.is_ok_and(|status| status.success())
        && Command::new(&program).status().is_ok_and(|status| status.success())
}
