//! Reads the ELF header of a program: the processor, and whether the program is statically linked.

use anyhow::{Context, Result, bail, ensure};

/// A processor architecture. [`Self::name`] is the name that image indexes use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    Amd64,
    Arm64,
    S390x,
}

impl Architecture {
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
            Self::S390x => "s390x",
        }
    }
}

const HEADER_LEN: usize = 64;
const CLASS_64_BIT: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const SEGMENT_INTERPRETER: u32 = 3;

/// Reads the processor of a statically linked program.
///
/// Fails for a dynamically linked one. In an image without the loader it could not start: "no such file or directory".
pub fn architecture_of_static(program: &[u8]) -> Result<Architecture> {
    let (architecture, linkage) = read(program)?;
    ensure!(
        linkage == Linkage::Static,
        "it is dynamically linked, and the image holds no shared libraries; link it statically \
         (RUSTFLAGS='-C target-feature=+crt-static' and an explicit --target), or let `xtask image` build it"
    );
    Ok(architecture)
}

/// Reads the processor of a program, whether it needs shared libraries or not.
pub fn architecture_of(program: &[u8]) -> Result<Architecture> {
    Ok(read(program)?.0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linkage {
    Static,
    Dynamic,
}

fn read(program: &[u8]) -> Result<(Architecture, Linkage)> {
    ensure!(program.len() >= HEADER_LEN && program.starts_with(b"\x7fELF"), "it is not an ELF program");
    ensure!(program[4] == CLASS_64_BIT, "it is not a 64-bit program");
    let fields = Fields { bytes: program, little_endian: program[5] == LITTLE_ENDIAN };
    let architecture = match fields.u16(18)? {
        62 => Architecture::Amd64,
        183 => Architecture::Arm64,
        22 => Architecture::S390x,
        other => bail!("it is for ELF machine {other}; known are x86-64, AArch64 and S/390"),
    };
    let table = usize::try_from(fields.u64(32)?)?;
    let entry_len = usize::from(fields.u16(54)?);
    let mut linkage = Linkage::Static;
    for index in 0..usize::from(fields.u16(56)?) {
        let entry = index.checked_mul(entry_len).and_then(|offset| table.checked_add(offset));
        let entry = entry.context("its program headers lie outside the file")?;
        if fields.u32(entry)? == SEGMENT_INTERPRETER {
            linkage = Linkage::Dynamic;
        }
    }
    Ok((architecture, linkage))
}

struct Fields<'a> {
    bytes: &'a [u8],
    little_endian: bool,
}

impl Fields<'_> {
    fn array<const N: usize>(&self, offset: usize) -> Result<[u8; N]> {
        let bytes = self.bytes.get(offset..).and_then(|rest| rest.first_chunk::<N>());
        let mut bytes = *bytes.context("the ELF file is cut short")?;
        if !self.little_endian {
            bytes.reverse();
        }
        Ok(bytes)
    }

    fn u16(&self, offset: usize) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array(offset)?))
    }

    fn u32(&self, offset: usize) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(offset)?))
    }

    fn u64(&self, offset: usize) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(offset)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 64-bit ELF file with the given segment types and no content.
    fn elf(machine: u16, big_endian: bool, segments: &[u32]) -> Vec<u8> {
        let order = |mut bytes: Vec<u8>| {
            if big_endian {
                bytes.reverse();
            }
            bytes
        };
        let mut file = vec![0; HEADER_LEN];
        file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, if big_endian { 2 } else { 1 }]);
        file[18..20].copy_from_slice(&order(machine.to_le_bytes().to_vec()));
        file[32..40].copy_from_slice(&order(64u64.to_le_bytes().to_vec()));
        file[54..56].copy_from_slice(&order(56u16.to_le_bytes().to_vec()));
        let count = u16::try_from(segments.len()).unwrap();
        file[56..58].copy_from_slice(&order(count.to_le_bytes().to_vec()));
        for segment in segments {
            file.extend(order(segment.to_le_bytes().to_vec()));
            file.extend([0; 52]);
        }
        file
    }

    #[test]
    fn names_the_processor_in_both_byte_orders() {
        assert_eq!(architecture_of_static(&elf(62, false, &[1, 2])).unwrap(), Architecture::Amd64);
        assert_eq!(architecture_of_static(&elf(183, false, &[1])).unwrap(), Architecture::Arm64);
        assert_eq!(architecture_of_static(&elf(22, true, &[1, 1])).unwrap(), Architecture::S390x);
    }

    #[test]
    fn refuses_what_cannot_run_alone() {
        let error = |file: &[u8]| architecture_of_static(file).unwrap_err().to_string();
        assert!(error(&elf(62, false, &[1, 3])).contains("dynamically linked"));
        assert!(error(&elf(22, true, &[1, 3])).contains("dynamically linked"));
        assert!(error(&elf(40, false, &[])).contains("ELF machine 40"));
        assert!(error(b"#!/bin/sh\n").contains("not an ELF program"));
        assert!(error(&elf(62, false, &[1, 1])[..100]).contains("cut short"));
    }

    #[test]
    fn names_the_processor_of_a_dynamic_program_where_that_is_enough() {
        assert_eq!(architecture_of(&elf(183, false, &[1, 3])).unwrap(), Architecture::Arm64);
        assert!(architecture_of(b"#!/bin/sh\n").is_err());
    }
}
