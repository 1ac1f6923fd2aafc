//! The arguments of a chore: options in any order among words.

use crate::failure::Failure;

pub(crate) struct Arguments(pub(crate) Vec<String>);

impl Arguments {
    /// Takes out an option without a value: whether it is there.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|word| word != name);
        self.0.len() < before
    }

    /// Takes out an option, `NAME VALUE` or `NAME=VALUE`: its value, if it is there.
    pub(crate) fn value(&mut self, name: &str) -> Result<Option<String>, Failure> {
        let is_it = |word: &String| {
            let rest = word.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        let Some(at) = self.0.iter().position(is_it) else {
            return Ok(None);
        };
        let word = self.0.remove(at);
        if let Some((_, value)) = word.split_once('=') {
            return Ok(Some(value.to_owned()));
        }
        match at < self.0.len() {
            true => Ok(Some(self.0.remove(at))),
            false => Err(Failure::new(format!("{name} without a value"))),
        }
    }

    /// The same for one of `values`, by default the first.
    pub(crate) fn one_of(&mut self, name: &str, values: &[&str]) -> Result<String, Failure> {
        let value = self.value(name)?;
        let value = value.unwrap_or_else(|| values[0].to_owned());
        match values.contains(&value.as_str()) {
            true => Ok(value),
            false => Err(Failure::new(format!(
                "{name} is not {value} but one of {}",
                values.join(", ")
            ))),
        }
    }

    /// The remaining words; none may be an option.
    pub(crate) fn words(self) -> Result<Vec<String>, Failure> {
        match self.0.iter().find(|word| word.starts_with('-')) {
            Some(word) => Err(Failure::new(format!("unknown option: {word}"))),
            None => Ok(self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Arguments;

    #[test]
    fn options_are_taken_out_from_among_words() {
        let words = ["a", "--n", "1", "--save", "b", "--m=2", "--n"];
        let mut arguments = Arguments(words.map(str::to_owned).into());
        assert_eq!(arguments.value("--n").expect("one"), Some("1".to_owned()));
        assert_eq!(arguments.one_of("--m", &["1", "2"]).expect("two"), "2");
        assert_eq!(arguments.one_of("--k", &["x", "y"]).expect("x"), "x");
        assert!(arguments.flag("--save") && !arguments.flag("--save"));
        assert!(arguments.value("--n").is_err());
        assert_eq!(arguments.words().expect("words"), ["a", "b"]);
        let mut wrong = Arguments(["--m", "3", "--what"].map(str::to_owned).into());
        assert!(wrong.one_of("--m", &["1", "2"]).is_err() && wrong.words().is_err());
    }
}
