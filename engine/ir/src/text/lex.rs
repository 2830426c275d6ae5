//! Tokens of the text form.

use crate::dim::text::in_word;
use crate::error::IrError;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// `conv`, `f32`, `a.b/c`.
    Word(String),
    /// `"a b"`, unescaped.
    Str(String),
    /// `%x`: a value.
    Value(String),
    /// `@x`: the name of a layer, or a symbol.
    At(String),
    /// `?x`: a device symbol.
    Device(String),
    /// `-1`, `0.5`, `1e-9`, `-inf`, as written.
    Number(String),
    /// `0x00ff`, without the prefix.
    Hex(String),
    /// `(`, `=` and so on.
    Punct(char),
    /// The end of the text.
    End,
}

impl Token {
    /// The token as messages name it.
    pub(super) fn show(&self) -> String {
        match self {
            Token::Word(s) | Token::Number(s) => format!("`{s}`"),
            Token::Str(s) => format!("{s:?}"),
            Token::Value(s) => format!("%{s}"),
            Token::At(s) => format!("@{s}"),
            Token::Device(s) => format!("?{s}"),
            Token::Hex(_) => "bytes".into(),
            Token::Punct(c) => format!("`{c}`"),
            Token::End => "the end".into(),
        }
    }
}

/// Reads tokens one after the other.
pub(super) struct Lexer<'a> {
    rest: &'a str,
    /// The line of the next character, from 1.
    pub(super) line: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { rest: text, line: 1 }
    }

    fn error(&self, message: impl Into<String>) -> IrError {
        IrError::Parse { line: self.line, message: message.into() }
    }

    fn take_while(&mut self, f: impl Fn(char) -> bool) -> &'a str {
        let n = self.rest.find(|c| !f(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(n);
        self.rest = rest;
        word
    }

    fn skip_blanks(&mut self) {
        loop {
            let blank = self.take_while(char::is_whitespace);
            self.line += blank.matches('\n').count();
            if !self.rest.starts_with('#') {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    /// The next token.
    pub(super) fn next(&mut self) -> Result<Token, IrError> {
        self.skip_blanks();
        let Some(c) = self.rest.chars().next() else { return Ok(Token::End) };
        if c.is_ascii_alphabetic() || c == '_' {
            return Ok(Token::Word(self.take_while(in_word).into()));
        }
        if c.is_ascii_digit() || c == '-' {
            return self.number();
        }
        if c == '"' {
            return self.string().map(Token::Str);
        }
        self.rest = &self.rest[c.len_utf8()..];
        match c {
            '%' => self.name().map(Token::Value),
            '@' => self.name().map(Token::At),
            '?' => self.name().map(Token::Device),
            '(' | ')' | '[' | ']' | '{' | '}' | ',' | ':' | '=' | '*' | '+' | '<' => Ok(Token::Punct(c)),
            _ => Err(self.error(format!("{c:?} is not expected here"))),
        }
    }

    fn number(&mut self) -> Result<Token, IrError> {
        if let Some(rest) = self.rest.strip_prefix("0x") {
            self.rest = rest;
            return Ok(Token::Hex(self.take_while(|c| c.is_ascii_hexdigit()).into()));
        }
        let start = self.rest;
        self.rest = start.strip_prefix('-').unwrap_or(start);
        if self.rest.starts_with("inf") {
            self.take_while(|c| c.is_ascii_alphabetic());
        } else {
            let mut last = ' ';
            // A sign belongs to the number after an exponent's `e` only.
            let n = self.rest.find(|c: char| {
                let inside = c.is_ascii_alphanumeric()
                    || c == '.'
                    || (matches!(c, '+' | '-') && matches!(last, 'e' | 'E'));
                last = c;
                !inside
            });
            self.rest = &self.rest[n.unwrap_or(self.rest.len())..];
        }
        let text = &start[..start.len() - self.rest.len()];
        if text.parse::<i64>().is_err() && text.parse::<f64>().is_err() {
            return Err(self.error(format!("`{text}` is no number")));
        }
        Ok(Token::Number(text.into()))
    }

    fn name(&mut self) -> Result<String, IrError> {
        if self.rest.starts_with('"') {
            return self.string();
        }
        match self.take_while(in_word) {
            "" => Err(self.error("a name is missing here")),
            s => Ok(s.into()),
        }
    }

    fn string(&mut self) -> Result<String, IrError> {
        let line = self.line;
        let open = |message: &str| IrError::Parse { line, message: message.into() };
        let mut out = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[i + 1..];
                    return Ok(out);
                }
                '\\' => {
                    out.push(escape(&mut chars).ok_or_else(|| open("an escape in this string is wrong"))?)
                }
                '\n' => return Err(open("a string ends with its line; write \\n")),
                _ => out.push(c),
            }
        }
        Err(open("a string does not end"))
    }
}

/// Character that an escape after a backslash stands for.
fn escape(chars: &mut impl Iterator<Item = (usize, char)>) -> Option<char> {
    Some(match chars.next()?.1 {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        '0' => '\0',
        c @ ('\\' | '"' | '\'') => c,
        'u' => {
            (chars.next()?.1 == '{').then_some(())?;
            let mut code = 0u32;
            loop {
                match chars.next()?.1 {
                    '}' => return char::from_u32(code),
                    c => code = code.checked_mul(16)?.checked_add(c.to_digit(16)?)?,
                }
            }
        }
        _ => return None,
    })
}
