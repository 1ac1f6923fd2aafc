//! Permissions: `mode`.

use super::error::Problem;

const FORM: &str = "a mode is some bits that are set (+) or not set (-), such as `u+s`, `o+r,o-w` \
                    or `a-w`, or octal digits of bits that are all set, such as `4000`";

/// The bits that `mode` matches on: those of chmod(2).
const BITS: u32 = 0o7777;

/// Bits that must be set, and bits that must not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ModeBits {
    set: u32,
    clear: u32,
}

impl ModeBits {
    /// Octal digits, or the letters of chmod(1).
    pub(super) fn parse(text: &str) -> Result<ModeBits, Problem> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let set = u32::from_str_radix(text, 8).map_err(|_| FORM.to_owned())?;
            if set == 0 || set & !BITS != 0 {
                let message = "these are no bits of a mode: they lie between 1 and 7777 (octal)";
                return Err(message.to_owned());
            }
            return Ok(ModeBits { set, clear: 0 });
        }
        let mut mode = ModeBits::default();
        for clause in text.split(',') {
            mode.add(clause.trim()).ok_or_else(|| FORM.to_owned())?;
        }
        if mode.set & mode.clear != 0 {
            return Err(format!(
                "no file has the mode `{text}`: a bit is set or it is not"
            ));
        }
        Ok(mode)
    }

    /// Adds `WHO+BITS` or `WHO-BITS`; `None` for anything else.
    fn add(&mut self, clause: &str) -> Option<()> {
        let sign = clause.find(['+', '-'])?;
        let (users, rest) = clause.split_at(sign);
        let (sign, letters) = rest.split_at(1);
        let mut classes = 0;
        for letter in users.chars() {
            classes |= match letter {
                'u' => 0o4700,
                'g' => 0o2070,
                'o' => 0o0007,
                'a' => 0o6777,
                _ => return None,
            };
        }
        if letters.is_empty() {
            return None;
        }
        for letter in letters.chars() {
            let bits = match letter {
                'r' => classes & 0o444,
                'w' => classes & 0o222,
                'x' => classes & 0o111,
                's' => classes & 0o6000,
                // The sticky bit is of no class.
                't' => 0o1000,
                _ => return None,
            };
            if bits == 0 {
                return None;
            }
            match sign {
                "+" => self.set |= bits,
                _ => self.clear |= bits,
            }
        }
        Some(())
    }

    pub(super) fn matches(self, mode: u32) -> bool {
        mode & self.set == self.set && mode & self.clear == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_in_letters_and_digits() {
        for (text, set, clear) in [
            ("4000", 0o4000, 0),
            ("0022", 0o022, 0),
            ("u+s", 0o4000, 0),
            ("g+s", 0o2000, 0),
            ("ug+rw", 0o660, 0),
            ("a-w", 0, 0o222),
            ("o+r, o-wx", 0o004, 0o003),
            ("+t", 0o1000, 0),
        ] {
            assert_eq!(ModeBits::parse(text), Ok(ModeBits { set, clear }), "{text}");
        }
        let mode = ModeBits::parse("u+s,o-w").unwrap();
        assert!(mode.matches(0o4755) && !mode.matches(0o755) && !mode.matches(0o4757));
    }

    #[test]
    fn invalid_modes_are_refused() {
        for text in [
            "", "0", "10000", "888", "u", "+r", "u+", "u+q", "z+r", "o+s", "u+r,u-r", "u=r",
        ] {
            assert!(ModeBits::parse(text).is_err(), "{text}");
        }
    }
}
