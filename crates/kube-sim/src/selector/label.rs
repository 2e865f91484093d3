//! Label selectors: apimachinery's `labels.Parse`, with its errors.

use serde_json::{Value, json};

use crate::status::{Cause, Status};
use crate::validate::names;

/// A parsed label selector. All requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Missing,
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Parses the query parameter `labelSelector`, e.g. `a=b,c in (d,e),!f`. Errors are the server's 400.
    pub fn parse(text: &str) -> Result<Self, Status> {
        let mut requirements = Parser::new(text).parse().map_err(Status::bad_request)?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    /// Converts a validated `metav1.LabelSelector` object (`matchLabels`, `matchExpressions`), such as `spec.selector`
    /// of a claim. `None` and `null` match nothing: the result is `None`. An empty object matches everything: the
    /// result is an empty selector.
    pub fn from_object(selector: Option<&Value>) -> Option<Self> {
        let selector = selector.filter(|selector| !selector.is_null())?;
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(Requirement { key: key.clone(), condition: Condition::In(values) });
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let texts = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let values: Vec<String> = texts.filter_map(Value::as_str).map(str::to_owned).collect();
            let condition = match expression.get("operator").and_then(Value::as_str) {
                Some("In") => Condition::In(values),
                Some("NotIn") => Condition::NotIn(values),
                Some("Exists") => Condition::Exists,
                Some("DoesNotExist") => Condition::Missing,
                // Validation refuses other operators. An unknown one matches nothing.
                _ => Condition::In(Vec::new()),
            };
            let key = expression.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
            requirements.push(Requirement { key, condition });
        }
        Some(Self { requirements })
    }

    /// Returns whether labels match; `get` looks one up.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(get(&requirement.key)))
    }

    /// Returns whether every object matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.condition {
            Condition::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Condition::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            Condition::Exists => value.is_some(),
            Condition::Missing => value.is_none(),
            Condition::Above(limit) => number().is_some_and(|number| number > *limit),
            Condition::Below(limit) => number().is_some_and(|number| number < *limit),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Identifier,
    In,
    NotIn,
    Equals,
    NotEquals,
    Above,
    Below,
    Not,
    Comma,
    Open,
    Close,
    End,
}

/// Scans on demand, with one token of lookahead.
struct Parser<'a> {
    rest: &'a str,
    next: (Token, &'a str),
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut parser = Self { rest: text, next: (Token::End, "") };
        parser.next = parser.scan();
        parser
    }

    fn parse(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            let (token, text) = self.peek_value();
            match token {
                Token::Identifier | Token::Not => {
                    let requirement =
                        self.requirement().map_err(|error| format!("unable to parse requirement: {error}"))?;
                    requirements.push(requirement);
                }
                Token::End => return Ok(requirements),
                _ => return Err(format!("found '{text}', expected: !, identifier, or 'end of string'")),
            }
            match self.take_value() {
                (Token::End, _) => return Ok(requirements),
                (Token::Comma, _) => {
                    let (token, text) = self.peek_value();
                    if !matches!(token, Token::Identifier | Token::Not) {
                        return Err(format!("found '{text}', expected: identifier after ','"));
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.take_value();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.take_value();
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        // The server has no path here and prints Go's `nil`.
        check(names::qualified(key), "<nil>", key)?;
        let ends = matches!(self.peek_value().0, Token::End | Token::Comma);
        let condition = match (negated, ends) {
            (true, _) => Condition::Missing,
            (false, true) => Condition::Exists,
            (false, false) => self.condition(key)?,
        };
        Ok(Requirement { key: key.to_owned(), condition })
    }

    fn condition(&mut self, key: &str) -> Result<Condition, String> {
        let (operator, text) = self.take();
        let mut values = match operator {
            Token::In | Token::NotIn => self.list()?,
            Token::Equals | Token::NotEquals | Token::Above | Token::Below => vec![self.exact()?],
            _ => return Err(format!("found '{text}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        values.sort();
        values.dedup();
        let mut bound = 0;
        if matches!(operator, Token::Above | Token::Below) {
            bound = values[0].parse().map_err(|_| {
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                Cause::invalid("values[0]", &json!(values[0]), why).text()
            })?;
        }
        for (index, value) in values.iter().enumerate() {
            check(names::label_value(value), &format!("values[{index}][{key}]"), value)?;
        }
        Ok(match operator {
            Token::Above => Condition::Above(bound),
            Token::Below => Condition::Below(bound),
            Token::NotIn | Token::NotEquals => Condition::NotIn(values),
            _ => Condition::In(values),
        })
    }

    fn list(&mut self) -> Result<Vec<String>, String> {
        let (token, text) = self.take_value();
        if token != Token::Open {
            return Err(format!("found '{text}' expected: '('"));
        }
        let mut values = Vec::new();
        match self.peek_value() {
            (Token::Identifier | Token::Comma, _) => {}
            (Token::Close, _) => {
                self.take_value();
                return Ok(vec![String::new()]);
            }
            (_, text) => return Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
        loop {
            match self.take_value() {
                (Token::Identifier, text) => {
                    values.push(text.to_owned());
                    match self.peek_value() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => break,
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek_value().0 {
                        Token::Close => {
                            values.push(String::new());
                            break;
                        }
                        Token::Comma => values.push(String::new()),
                        _ => {}
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
        self.take_value();
        Ok(values)
    }

    fn exact(&mut self) -> Result<String, String> {
        match self.peek_value() {
            (Token::End | Token::Comma, _) => Ok(String::new()),
            (Token::Identifier, text) => {
                self.take();
                Ok(text.to_owned())
            }
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }

    fn take(&mut self) -> (Token, &'a str) {
        let token = self.next;
        self.next = self.scan();
        token
    }

    /// Returns the next token. Here `in` and `notin` are texts, not operators.
    fn peek_value(&self) -> (Token, &'a str) {
        match self.next {
            (Token::In | Token::NotIn, text) => (Token::Identifier, text),
            other => other,
        }
    }

    fn take_value(&mut self) -> (Token, &'a str) {
        let token = self.peek_value();
        self.take();
        token
    }

    fn scan(&mut self) -> (Token, &'a str) {
        let special = |character: char| matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<');
        let space = |character: char| matches!(character, ' ' | '\t' | '\r' | '\n');
        let rest = self.rest.trim_start_matches(space);
        let Some(first) = rest.chars().next() else {
            self.rest = rest;
            return (Token::End, "");
        };
        if !special(first) {
            let end = rest.find(|character| special(character) || space(character)).unwrap_or(rest.len());
            let (text, after) = rest.split_at(end);
            self.rest = after;
            let token = match text {
                "in" => Token::In,
                "notin" => Token::NotIn,
                _ => Token::Identifier,
            };
            return (token, text);
        }
        let (length, token) = match (first, rest.as_bytes().get(1)) {
            ('=', Some(b'=')) => (2, Token::Equals),
            ('!', Some(b'=')) => (2, Token::NotEquals),
            ('=', _) => (1, Token::Equals),
            ('!', _) => (1, Token::Not),
            ('>', _) => (1, Token::Above),
            ('<', _) => (1, Token::Below),
            ('(', _) => (1, Token::Open),
            (')', _) => (1, Token::Close),
            _ => (1, Token::Comma),
        };
        let (text, after) = rest.split_at(length);
        self.rest = after;
        (token, text)
    }
}

fn check(complaints: Vec<String>, path: &str, value: &str) -> Result<(), String> {
    if complaints.is_empty() { Ok(()) } else { Err(Cause::invalid(path, &json!(value), &complaints.join("; ")).text()) }
}
