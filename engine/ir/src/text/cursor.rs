//! A place in a text, with what parsers of all parts share.

use super::TensorRef;
use super::lex::{Lexer, Token};
use crate::error::IrError;
use crate::tensor::Tensor;

/// Finds the tensors that a text refers to.
pub(super) type Lookup<'a> = &'a dyn Fn(&TensorRef<'_>) -> Option<Tensor>;

/// A text that is being read, one token ahead.
pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    pub(super) token: Token,
    /// The line of `token`.
    pub(super) line: usize,
    /// The line of the token before it.
    last_line: usize,
    pub(super) lookup: Lookup<'a>,
}

impl<'a> Parser<'a> {
    /// At the first token of a text.
    pub(super) fn new(text: &'a str, lookup: Lookup<'a>) -> Result<Parser<'a>, IrError> {
        let mut p = Parser { lexer: Lexer::new(text), token: Token::End, line: 1, last_line: 1, lookup };
        p.advance()?;
        Ok(p)
    }

    /// The error for something wrong with what was read so far.
    pub(super) fn error(&self, message: impl std::fmt::Display) -> IrError {
        IrError::Parse { line: self.last_line, message: message.to_string() }
    }

    /// The error for another token than the present one.
    pub(super) fn wanted(&self, what: &str) -> IrError {
        IrError::Parse { line: self.line, message: format!("found {}, wanted {what}", self.token.show()) }
    }

    /// The present token; the next one takes its place.
    pub(super) fn advance(&mut self) -> Result<Token, IrError> {
        let next = self.lexer.next()?;
        self.last_line = std::mem::replace(&mut self.line, self.lexer.line);
        Ok(std::mem::replace(&mut self.token, next))
    }

    pub(super) fn accept(&mut self, c: char) -> Result<bool, IrError> {
        let there = self.token == Token::Punct(c);
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    pub(super) fn expect(&mut self, c: char) -> Result<(), IrError> {
        if self.accept(c)? { Ok(()) } else { Err(self.wanted(&format!("`{c}`"))) }
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(&self.token, Token::Word(w) if w == word)
    }

    pub(super) fn accept_word(&mut self, word: &str) -> Result<bool, IrError> {
        let there = self.is_word(word);
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    pub(super) fn word(&mut self, what: &str) -> Result<String, IrError> {
        match &self.token {
            Token::Word(_) => match self.advance()? {
                Token::Word(w) => Ok(w),
                _ => Err(self.wanted(what)),
            },
            _ => Err(self.wanted(what)),
        }
    }

    pub(super) fn string(&mut self, what: &str) -> Result<String, IrError> {
        match self.token.clone() {
            Token::Str(s) => self.advance().map(|_| s),
            _ => Err(self.wanted(what)),
        }
    }

    pub(super) fn value_name(&mut self) -> Result<String, IrError> {
        match self.token.clone() {
            Token::Value(s) => self.advance().map(|_| s),
            _ => Err(self.wanted("a value, such as %x")),
        }
    }

    /// Items up to `close`, separated by commas.
    pub(super) fn items<T>(
        &mut self,
        close: char,
        mut item: impl FnMut(&mut Self) -> Result<T, IrError>,
    ) -> Result<Vec<T>, IrError> {
        let mut out = Vec::new();
        while !self.accept(close)? {
            if !out.is_empty() {
                self.expect(',')?;
            }
            out.push(item(self)?);
        }
        Ok(out)
    }
}
