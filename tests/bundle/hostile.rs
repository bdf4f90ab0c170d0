//! Archives made to do harm. Each is right in everything but the one thing that harms, and is refused for that thing.

use std::fs;
use std::process::Command;

use crate::raw::{self, Entry, Fields, named, special, top};
use crate::workbench::{Ran, Workbench, tree};

const HARMLESS: [(&str, &[u8]); 2] = [("bin/tool", b"a tool"), ("run", b"a program")];

fn harmless() -> Vec<raw::File> {
    HARMLESS.iter().map(|(path, data)| named(path, data)).collect()
}

/// Where the entry of `path` is.
fn at(entries: &[Entry], path: &str) -> usize {
    let name = top(path);
    let found = entries
        .iter()
        .position(|entry| entry.header.starts_with(name.as_bytes()) && entry.header[name.len()] == 0);
    found.unwrap_or_else(|| panic!("no entry {path}"))
}

/// Verifies and extracts an archive that must be refused with `code` while saying `names`; nothing may be written.
#[track_caller]
fn refused(archive: &[u8], code: i32, names: &[&str]) {
    let bench = Workbench::bare();
    bench.put("outside/canary", b"as it was");
    bench.put("out/canary", b"as it was");
    bench.put("hostile.tar.gz", archive);
    let before = tree(&bench.path(""));
    for args in [
        &["verify", "hostile.tar.gz"][..],
        &["extract", "hostile.tar.gz", "out"],
        &["extract", "hostile.tar.gz", "out", "--jobs", "1"],
        &["extract", "hostile.tar.gz", "new"],
    ] {
        bench.run(args).failed(code, names);
        assert!(tree(&bench.path("")) == before, "{args:?} changed something");
    }
}

/// Replaces, adds or changes entries of a harmless bundle.
#[track_caller]
fn changed(names: &[&str], change: impl FnOnce(&mut Vec<Entry>)) {
    let mut entries = raw::entries(&harmless());
    change(&mut entries);
    refused(&raw::archive(&entries), 3, names);
}

/// As [`changed`], for a change that adds an entry: the last one is left out, so that the number of members still fits.
#[track_caller]
fn inserted(names: &[&str], change: impl FnOnce(&mut Vec<Entry>)) {
    changed(names, |entries| {
        let before = entries.len();
        change(entries);
        assert_eq!(entries.len(), before + 1);
        entries.pop();
    });
}

/// A bundle whose `bundle.json` itself names `path`, and whose entries agree.
#[track_caller]
fn listed(path: &str, names: &[&str]) {
    let mut files = harmless();
    files.push(named(path, b"evil"));
    refused(&raw::archive(&raw::entries(&files)), 3, names);
}

#[test]
fn the_harmless_one_is_taken() {
    let bench = Workbench::bare();
    bench.put("b.tar.gz", &raw::archive(&raw::entries(&harmless())));
    bench.run(&["verify", "b.tar.gz"]).ok();
    bench.run(&["extract", "b.tar.gz", "out"]).ok();
    let folder = bench.path("out").join(raw::TOP);
    assert_eq!(fs::read(folder.join("bin/tool")).unwrap(), b"a tool");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 4);
}

#[test]
fn parent_folders() {
    listed("../evil", &["../evil", "part . or .."]);
    listed("bin/../../evil", &["part . or .."]);
    changed(&["entry run", "../evil"], |entries| {
        let run = at(entries, "run");
        entries[run] = raw::file(&top("../evil"), 0o644, b"a program");
    });
}

#[test]
fn absolute_names() {
    listed("/tmp/quantykube-evil", &["it is absolute"]);
    changed(&["entry run", "/tmp/quantykube-evil"], |entries| {
        let run = at(entries, "run");
        entries[run] = raw::file("/tmp/quantykube-evil", 0o644, b"a program");
    });
    assert!(!fs::exists("/tmp/quantykube-evil").unwrap());
}

#[test]
fn symbolic_links() {
    changed(&["entry run", "a symbolic link"], |entries| {
        let run = at(entries, "run");
        entries[run] = raw::special_in_place_of_a_file(&top("run"), b'2', "/etc/passwd");
    });
}

#[test]
fn a_link_and_then_a_file_through_it() {
    changed(&["entry bin", "a symbolic link"], |entries| {
        let bin = at(entries, "bin/");
        entries[bin] = special(&top("bin"), b'2', "../../outside");
    });
}

#[test]
fn a_folder_over_a_link() {
    inserted(&["a symbolic link"], |entries| {
        let bin = at(entries, "bin/");
        entries.insert(bin, special(&top("bin"), b'2', "../../outside"));
    });
}

#[test]
fn hard_links() {
    changed(&["entry run", "a hard link"], |entries| {
        let run = at(entries, "run");
        entries[run] = raw::special_in_place_of_a_file(&top("run"), b'1', "../outside/canary");
    });
}

#[test]
fn devices_and_pipes() {
    for (kind, name) in [(b'3', "a device"), (b'4', "a device"), (b'6', "a pipe")] {
        changed(&["entry run", name], |entries| {
            let run = at(entries, "run");
            entries[run] = raw::special_in_place_of_a_file(&top("run"), kind, "");
        });
    }
}

#[test]
fn a_pax_header_that_shifts_the_size() {
    inserted(&["entry run", "a PAX header"], |entries| {
        let run = at(entries, "run");
        let data = b"15 size=100000\n";
        let size = data.len() as u64;
        let header = Fields {
            name: "PaxHeaders/run",
            kind: b'x',
            mode: 0o644,
            size,
            link: "",
        }
        .header();
        entries.insert(
            run,
            Entry {
                header,
                data: data.to_vec(),
            },
        );
    });
    inserted(&["entry bin", "a PAX header"], |entries| {
        let header = Fields {
            name: "pax_global_header",
            kind: b'g',
            mode: 0o644,
            size: 0,
            link: "",
        }
        .header();
        let bin = at(entries, "bin/");
        entries.insert(
            bin,
            Entry {
                header,
                data: Vec::new(),
            },
        );
    });
}

#[test]
fn a_gnu_long_name() {
    for kind in [b'L', b'K'] {
        inserted(&["entry run", "a GNU long name"], |entries| {
            let run = at(entries, "run");
            let data = b"../outside/evil\0";
            let size = data.len() as u64;
            let header = Fields {
                name: "././@LongLink",
                kind,
                mode: 0o644,
                size,
                link: "",
            }
            .header();
            entries.insert(
                run,
                Entry {
                    header,
                    data: data.to_vec(),
                },
            );
        });
    }
}

/// A PAX header, with any records.
fn pax(records: &[u8]) -> Entry {
    let header = Fields {
        name: "PaxHeaders/run",
        kind: b'x',
        mode: 0o644,
        size: records.len() as u64,
        link: "",
    };
    Entry {
        header: header.header(),
        data: records.to_vec(),
    }
}

#[test]
fn two_headers_that_each_name_the_next_file() {
    // Readers differ in which of the two they believe: ours takes neither.
    let long_name = || Entry {
        header: Fields {
            name: "././@LongLink",
            kind: b'L',
            mode: 0o644,
            size: 16,
            link: "",
        }
        .header(),
        data: b"../outside/evil\0".to_vec(),
    };
    let path = b"25 path=../outside/evil2\n";
    for order in [[0, 1], [1, 0]] {
        changed(&["entry run"], |entries| {
            let run = at(entries, "run");
            for which in order {
                let entry = if which == 0 { pax(path) } else { long_name() };
                entries.insert(run, entry);
            }
            entries.truncate(entries.len() - 2);
        });
    }
    for records in [
        &path[..],
        b"22 linkpath=/etc/shadow\n",
        b"20 GNU.sparse.size=9\n",
        b"9999 path=",
    ] {
        inserted(&["entry run", "a PAX header"], |entries| {
            let run = at(entries, "run");
            entries.insert(run, pax(records));
        });
    }
}

#[test]
fn sizes_in_other_writings() {
    // GNU's base-256, spaces, a missing end, a minus: each means the right number to some reader.
    let right = b"a program".len() as u64;
    let mut binary = [0_u8; 12];
    binary[0] = 0x80;
    binary[4..].copy_from_slice(&right.to_be_bytes());
    let texts: [&[u8]; 4] = [&binary, b"         11\0", b"000000000011", b"-0000000011\0"];
    for text in texts {
        changed(&["entry run", "not written as bundle.json gives it"], |entries| {
            let run = at(entries, "run");
            entries[run].header[124..124 + text.len()].copy_from_slice(text);
            raw::sum(&mut entries[run].header);
        });
    }
}

#[test]
fn a_name_in_two_halves() {
    // prefix and name together give another path than the name alone.
    changed(&["entry run", "../../outside"], |entries| {
        let run = at(entries, "run");
        entries[run].header[345..358].copy_from_slice(b"../../outside");
        raw::sum(&mut entries[run].header);
    });
}

#[test]
fn duplicate_names() {
    listed("run", &["run", "twice"]);
    inserted(&["entry run", "found a file named", "bin/tool"], |entries| {
        let tool = at(entries, "bin/tool");
        let again = entries[tool].clone();
        entries.insert(tool + 1, again);
    });
}

#[test]
fn names_that_become_equal() {
    listed("RUN", &["twice, perhaps in another case"]);
    listed("bin//tool", &["an empty part"]);
    listed("bin/./tool", &["part . or .."]);
    listed("run/x", &["run/x", "a part of it is a file"]);
    listed("run\u{301}", &["only ASCII"]);
    listed("bundle.json", &["twice"]);
    listed("sha256sums", &["twice"]);
    listed("SHA256SUMS.minisig", &["twice"]);
}

#[test]
fn names_that_hide() {
    listed(".hidden", &["begins with a dot"]);
    listed("bin/-rf", &["begins with a hyphen"]);
    listed("bin/a\nb", &["only ASCII"]);
}

#[test]
fn another_set_of_files() {
    changed(&["table has 9 members, bundle.json gives 7"], |entries| {
        entries.push(raw::file(&top("yyy"), 0o644, b"extra"));
        entries.push(raw::file(&top("zzz"), 0o644, b"extra"));
    });
    // One more can only be the signature, at its place.
    changed(&["entry SHA256SUMS.minisig", "bin/"], |entries| {
        entries.push(raw::file(&top("zzz"), 0o644, b"extra"));
    });
    changed(&["table has 6 members, bundle.json gives 7"], |entries| {
        entries.pop();
    });
    changed(&["entry bin/tool"], |entries| {
        let (tool, run) = (at(entries, "bin/tool"), at(entries, "run"));
        entries.swap(tool, run);
    });
}

#[test]
fn other_bytes_under_the_same_name() {
    changed(&["run: sha256 is"], |entries| {
        let run = at(entries, "run");
        entries[run].data = b"b program".to_vec();
    });
    changed(&["SHA256SUMS: sha256 is"], |entries| {
        let sums = at(entries, "SHA256SUMS");
        entries[sums].data[0] ^= 1;
    });
}

#[test]
fn sizes_that_lie() {
    for lie in [8, 10, 100_000, 0o77777777777] {
        changed(&["entry run", &format!("with {lie} bytes")], |entries| {
            let run = at(entries, "run");
            let name = top("run");
            entries[run].header = Fields {
                name: &name,
                kind: b'0',
                mode: 0o644,
                size: lie,
                link: "",
            }
            .header();
        });
    }
    let mut files = harmless();
    files[1].size = u64::MAX;
    refused(&raw::archive(&raw::entries(&files)), 3, &["18446744073709551615 bytes"]);
    files[1].size = 5_000_000;
    refused(
        &raw::archive(&raw::entries(&files)),
        3,
        &["the table has 7 members, bundle.json gives 8"],
    );
}

#[test]
fn other_headers_for_the_same_file() {
    let changes: [(usize, &[u8]); 8] = [
        (100, b"0000755"),
        (100, b"0004755"),
        (108, b"0001750"),
        (136, b"00000000000"),
        (157, b"link"),
        (257, b"ustar  \0"),
        (265, b"root"),
        (500, b"x"),
    ];
    for (place, text) in changes {
        changed(&["entry run", "not written as bundle.json gives it"], |entries| {
            let run = at(entries, "run");
            entries[run].header[place..place + text.len()].copy_from_slice(text);
            raw::sum(&mut entries[run].header);
        });
    }
    changed(&["entry run"], |entries| {
        let run = at(entries, "run");
        entries[run].header[148] ^= 1;
    });
}

#[test]
fn bytes_in_the_padding_and_after_the_end() {
    changed(&["the padding after it is not empty"], |entries| {
        let run = at(entries, "run");
        entries[run].data.resize(512, 0);
        entries[run].data[511] = 1;
    });
    let mut members = raw::members(&raw::entries(&harmless()));
    let end = members.len() - 1;
    members[end] = raw::member(&[7; 1024], 1024);
    refused(&raw::seal(&members), 3, &["the end of the archive"]);
    let mut longer = raw::archive(&raw::entries(&harmless()));
    longer.extend(raw::member(b"more", 4));
    refused(&longer, 3, &["38 bytes follow the end of the bundle"]);
}

#[test]
fn a_bomb_of_zeros() {
    // The member of `run` inflates to 256 MiB and declares 1024 bytes; then it declares what bundle.json cannot mean.
    let entries = raw::entries(&harmless());
    let run = at(&entries, "run");
    let zeros = vec![0; 64 << 20];
    let mut bomb = raw::member(&zeros.repeat(4), 1024);
    let mut members = raw::members(&entries);
    // So few deflated bytes fit 1024 inflated ones that the header alone gives it away.
    members[run] = bomb.clone();
    refused(
        &raw::seal(&members),
        3,
        &["deflated bytes; 1024 bytes need at most 1029"],
    );
    // Short enough to pass for 1024 bytes, it is cut off at its declared length.
    bomb = raw::member(&vec![0; 900_000], 1024);
    assert!(bomb.len() < 1029 + 32, "the bomb must be short");
    members[run] = bomb;
    let archive = raw::seal(&members);
    refused(&archive, 3, &["inflates to more than the 1024 bytes declared"]);
    members[run] = raw::member(&vec![0; 4 << 20], 4 << 20);
    refused(
        &raw::seal(&members),
        3,
        &["declares 4194304 inflated bytes, bundle.json gives 1024"],
    );
    members[run] = raw::member(&vec![0; 5 << 20], 5 << 20);
    refused(&raw::seal(&members), 3, &["declares 5242880 bytes"]);
}

#[test]
fn memory_stays_bounded() {
    // 256 MiB of zeros, honestly declared, checked with far less memory than that.
    let bench = Workbench::bare();
    let bundle = raw::archive(&raw::entries(&[named("run", &vec![0; 256 << 20])]));
    bench.put("b.tar.gz", &bundle);
    let script = "ulimit -v 150000 && exec ./quantykube-bundle verify b.tar.gz --jobs 2";
    let run = Command::new("sh")
        .args(["-c", script])
        .current_dir(bench.path(""))
        .output()
        .unwrap();
    Ran::from(run).ok();
}

#[test]
fn a_newer_format_says_which_version_it_needs() {
    let files = harmless();
    let mut entries = raw::entries(&files);
    let data = raw::bundle_json(&files, 2, "9.8.7");
    entries[0] = raw::file(&top("bundle.json"), 0o644, &data);
    refused(
        &raw::archive(&entries),
        7,
        &["format 2", "version 9.8.7 or newer is needed"],
    );
}
