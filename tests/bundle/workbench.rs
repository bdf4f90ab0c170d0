//! A folder with programs to pack, and the program under test.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

/// amd64 and arm64 in an ELF header.
pub const AMD64: u16 = 62;
pub const ARM64: u16 = 183;

/// A temporary folder that every user can enter, with `quantykube-bundle` and our programs in it.
pub struct Workbench {
    folder: TempDir,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Asserts the exit code and that everything in `names` was said.
    #[track_caller]
    pub fn failed(&self, code: i32, names: &[&str]) {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.out, self.err);
        for name in names {
            assert!(self.err.contains(name), "{name:?} was not said:\n{}", self.err);
        }
    }

    #[track_caller]
    pub fn ok(self) -> Ran {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Workbench {
    /// With stand-ins for our programs: ELF files of the right shape that nobody runs.
    pub fn new() -> Workbench {
        static RUNNER: OnceLock<Vec<u8>> = OnceLock::new();
        let bench = Workbench::bare();
        bench.put("quantykube", RUNNER.get_or_init(|| elf(AMD64, false, 9 << 20, 1)));
        bench.put("quantykube-store", &elf(AMD64, false, 300_000, 2));
        bench
    }

    /// Without programs to pack.
    pub fn bare() -> Workbench {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let bench = Workbench { folder };
        let program = quantykube_tests::program("quantykube-bundle");
        // A link where it can be one: the program is large.
        if fs::hard_link(&program, bench.path("quantykube-bundle")).is_err() {
            fs::copy(&program, bench.path("quantykube-bundle")).unwrap();
        }
        fs::create_dir(bench.path("out")).unwrap();
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// `quantykube-bundle` in the workbench, with an empty environment but for what a user has.
    pub fn command(&self) -> Command {
        let mut command = Command::new(self.path("quantykube-bundle"));
        command.current_dir(self.folder.path()).env_remove("SOURCE_DATE_EPOCH");
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.command().args(args).output().unwrap().into()
    }

    /// Builds `spec` for amd64, whatever this machine is, into `out/b.tar.gz`.
    pub fn build(&self, spec: &str) -> Ran {
        self.put("spec.yaml", format!("architecture: amd64\n{spec}").as_bytes());
        self.run(&["build", "spec.yaml", "-o", "out/b.tar.gz"])
    }

    /// A default bundle.
    pub fn default_bundle(&self) -> PathBuf {
        self.build(OWN).ok();
        self.path("out/b.tar.gz")
    }

    /// Builds a default bundle into `out/b.tar.gz`, signed with `key`.
    pub fn build_signed(&self, key: &str, environment: &[(&str, &str)]) -> Ran {
        self.put("spec.yaml", format!("architecture: amd64\n{OWN}").as_bytes());
        let mut command = self.command();
        command.args(["build", "spec.yaml", "-o", "out/b.tar.gz", "--sign", key]);
        command.envs(environment.iter().copied()).output().unwrap().into()
    }

    /// Builds `spec`, which must fail with `code`, name all of `names` and leave nothing.
    #[track_caller]
    pub fn refuses(&self, spec: &str, code: i32, names: &[&str]) {
        self.build(spec).failed(code, names);
        let left: Vec<_> = tree(&self.path("out")).into_keys().collect();
        assert!(left.is_empty(), "the build left {left:?}");
    }
}

/// The programs that every spec lists.
pub const OWN: &str = "programs: [{name: quantykube}, {name: quantykube-store}]\n";

/// Everything below a folder: path to mode, kind and content (of a link: its target).
pub fn tree(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let data = fs::symlink_metadata(&path).unwrap();
            let content = match data.file_type() {
                kind if kind.is_file() => fs::read(&path).unwrap(),
                kind if kind.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                _ => Vec::new(),
            };
            if data.is_dir() {
                todo.push(path.clone());
            }
            found.insert(path.strip_prefix(folder).unwrap().to_owned(), (data.mode(), content));
        }
    }
    found
}

/// Bytes that compress like a program: some of them repeat.
pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 64);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match state % 4 {
            0 if bytes.len() > 4096 => {
                let from = bytes.len() - 64 - (state >> 8) as usize % 4000;
                bytes.extend_from_within(from..from + 48);
            }
            _ => bytes.extend_from_slice(&state.to_le_bytes()),
        }
    }
    bytes.truncate(length);
    bytes
}

/// An ELF file with one program header.
pub fn elf(machine: u16, dynamic: bool, length: usize, seed: u64) -> Vec<u8> {
    let mut file = vec![0; 64 + 56];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16..18].copy_from_slice(&2_u16.to_le_bytes());
    file[18..20].copy_from_slice(&machine.to_le_bytes());
    file[20..24].copy_from_slice(&1_u32.to_le_bytes());
    file[32..40].copy_from_slice(&64_u64.to_le_bytes());
    file[54..56].copy_from_slice(&56_u16.to_le_bytes());
    file[56..58].copy_from_slice(&1_u16.to_le_bytes());
    let kind: u32 = if dynamic { 3 } else { 1 };
    file[64..68].copy_from_slice(&kind.to_le_bytes());
    file.extend(bytes(length, seed));
    file
}

/// Runs a script as root of namespaces of its own. `None`, said loudly, where this machine does not let us; a script says so
/// with exit code 99.
pub fn unshared(bench: &Workbench, test: &str, namespaces: &[&str], script: &str) -> Option<Ran> {
    let run = Command::new("unshare")
        .args(namespaces)
        .args(["--map-root-user", "sh", "-c", script])
        .current_dir(bench.path(""))
        .output()
        .unwrap();
    let ran = Ran::from(run);
    if ran.code == Some(99) || ran.err.contains("unshare:") {
        quantykube_tests::skipped(test, ran.err.trim());
        return None;
    }
    Some(ran)
}
