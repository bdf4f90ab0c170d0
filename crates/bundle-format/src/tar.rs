//! ustar headers: the one that is written, and what another one says.

/// The length of a header and of every block, in bytes.
pub(crate) const BLOCK: u64 = 512;
/// The two empty blocks at the end of an archive.
pub(crate) const END: u64 = 2 * BLOCK;

/// What an entry is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Node {
    Folder,
    File { size: u64, mode: u32 },
}

/// The header of one entry. `name` ends with `/` for a folder. `None` where ustar cannot hold the name.
pub(crate) fn header(name: &str, node: Node, mtime: u64) -> Option<[u8; 512]> {
    let (prefix, rest) = split(name)?;
    let (size, mode, kind) = match node {
        Node::Folder => (0, 0o755, b'5'),
        Node::File { size, mode } => (size, mode, b'0'),
    };
    let mut header = [0; 512];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, rest);
    put(100, &format!("{mode:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, &format!("{mtime:011o}"));
    put(148, "        ");
    put(257, "ustar");
    put(263, "00");
    put(329, "0000000");
    put(337, "0000000");
    put(345, prefix);
    header[156] = kind;
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Some(header)
}

/// Splits a name at the first `/` that makes both parts fit, or not at all.
fn split(name: &str) -> Option<(&str, &str)> {
    if name.len() <= 100 {
        return Some(("", name));
    }
    let cut = name
        .match_indices('/')
        .map(|(at, _)| at)
        .find(|at| name.len() - at - 1 <= 100)?;
    (1..=155).contains(&cut).then(|| (&name[..cut], &name[cut + 1..]))
}

/// The bytes that fill the last block of a file.
pub(crate) fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK) - size
}

/// The size that a header states, where it is written as we write it.
pub(crate) fn stated_size(header: &[u8; 512]) -> Option<u64> {
    let digits = std::str::from_utf8(&header[124..135]).ok()?;
    let plain = header[135] == 0 && digits.bytes().all(|b| (b'0'..=b'7').contains(&b));
    plain.then(|| u64::from_str_radix(digits, 8).ok())?
}

/// The name that a header states, prefix included.
pub(crate) fn stated_name(header: &[u8; 512]) -> String {
    let text = |range: std::ops::Range<usize>| {
        let field = &header[range];
        let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end]).into_owned()
    };
    let (prefix, name) = (text(345..500), text(0..100));
    if prefix.is_empty() {
        name
    } else {
        format!("{prefix}/{name}")
    }
}

/// What a header that is not the expected one says, in words.
pub(crate) fn describe(header: &[u8; 512]) -> String {
    if header.iter().all(|&b| b == 0) {
        return "the archive ends here".into();
    }
    let kind = match header[156] {
        b'0' | 0 => "a file",
        b'1' => "a hard link",
        b'2' => "a symbolic link",
        b'3' | b'4' => "a device",
        b'5' => "a folder",
        b'6' => "a pipe",
        b'x' | b'g' => "a PAX header",
        b'L' | b'K' => "a GNU long name",
        b'S' => "a GNU sparse file",
        _ => "an entry of unknown type",
    };
    let size = stated_size(header).map_or_else(|| "an unreadable size".into(), |size| format!("{size} bytes"));
    format!("{kind} named {:?} with {size}", stated_name(header))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_split_in_one_way() {
        let folder = "f".repeat(60);
        let name = format!("{folder}/{folder}/{folder}");
        assert_eq!(split(&name).unwrap(), (&name[..121], &name[122..]));
        let name = format!("{folder}/{}", "n".repeat(100));
        assert_eq!(split(&name).unwrap().0, folder);
        assert_eq!(split(&"n".repeat(100)).unwrap().0, "");
        assert_eq!(split(&"n".repeat(101)), None);
        assert_eq!(split(&format!("{}/{}", "p".repeat(156), "n".repeat(99))), None);
    }

    #[test]
    fn a_header_says_what_it_was_given() {
        let header = header(
            "a/b",
            Node::File {
                size: 1234,
                mode: 0o755,
            },
            7,
        )
        .unwrap();
        assert_eq!(stated_size(&header), Some(1234));
        assert_eq!(stated_name(&header), "a/b");
        assert_eq!(describe(&header), "a file named \"a/b\" with 1234 bytes");
        assert_eq!(padding(0), 0);
        assert_eq!(padding(1), 511);
        assert_eq!(padding(512), 0);
    }
}
