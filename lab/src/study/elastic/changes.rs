//! The changes, in their order, and what a configuration holds after each.

use super::super::Size;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is changed in one run of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Part {
    /// What was published.
    Article,
    /// What changes in operation beside that.
    Further,
}

impl Part {
    pub(super) const ALL: [Self; 2] = [Self::Article, Self::Further];

    /// A name for keys and files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Article => "article",
            Self::Further => "further",
        }
    }

    /// A name for titles.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Article => "changes of the article",
            Self::Further => "further changes",
        }
    }
}

/// Something that is changed while requests go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Change {
    /// A fourth origin comes.
    Fourth,
    /// It goes again.
    Three,
    /// CORS fields in answers.
    Cors,
    /// A field of our own in answers.
    Header,
    /// The path that origins see is another one.
    Rewrite,
    /// The routes are what they were at first.
    Base,
    /// Another certificate.
    Certificate,
    /// The program is replaced.
    Upgrade,
}

impl Change {
    /// A name for charts.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Fourth => "4 origins",
            Self::Three => "3 origins",
            Self::Cors => "CORS",
            Self::Header => "header",
            Self::Rewrite => "rewrite",
            Self::Base => "base",
            Self::Certificate => "certificate",
            Self::Upgrade => "new binary",
        }
    }
}

/// What a configuration holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub fourth: bool,
    pub cors: bool,
    pub header: bool,
    pub rewrite: bool,
    pub second_certificate: bool,
}

impl State {
    /// What it holds after a change. Route changes come on top of each other, as they were published.
    pub(super) fn after(self, change: Change) -> Self {
        match change {
            Change::Fourth => Self { fourth: true, ..self },
            Change::Three => Self { fourth: false, ..self },
            Change::Cors => Self { cors: true, ..self },
            Change::Header => Self { header: true, ..self },
            Change::Rewrite => Self { rewrite: true, ..self },
            Change::Base => Self { second_certificate: self.second_certificate, ..Self::default() },
            Change::Certificate => Self { second_certificate: true, ..self },
            Change::Upgrade => self,
        }
    }

    /// The flags of the templates.
    pub(super) fn flags(self) -> [(&'static str, bool); 5] {
        let filters = self.cors || self.header || self.rewrite;
        let Self { fourth, cors, header, rewrite, .. } = self;
        [("fourth", fourth), ("cors", cors), ("header", header), ("rewrite", rewrite), ("filters", filters)]
    }
}

/// How much is changed, and how fast.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// The time before the first change, and after each.
    pub step: Duration,
    article: Vec<Change>,
    further: Vec<Change>,
    /// The rates, requests a second.
    pub rates: &'static [u64],
}

impl Schedule {
    pub(super) fn new(size: Size) -> Self {
        let cycles = size.pick(3, 1, 1);
        let mut article = [Change::Fourth, Change::Three].repeat(cycles);
        article.extend([Change::Cors, Change::Header, Change::Rewrite, Change::Base]);
        let further = vec![Change::Certificate, Change::Upgrade];
        let step = Duration::from_millis(size.pick(30_000, 2_500, 800));
        Self { step, article, further, rates: size.pick(&[100, 500, 1000], &[500], &[200]) }
    }

    /// All changes of a part.
    pub(super) fn changes(&self, part: Part) -> &[Change] {
        match part {
            Part::Article => &self.article,
            Part::Further => &self.further,
        }
    }

    /// The changes that a product can make. The others have nothing in place of the rest.
    pub(super) fn of(&self, product: &str, part: Part) -> Vec<Change> {
        let can = |change: &&Change| **change != Change::Upgrade || cannot_upgrade(product).is_none();
        self.changes(part).iter().filter(can).copied().collect()
    }

    /// How long requests are made when so many changes are.
    pub(super) fn length(&self, changes: usize) -> Duration {
        self.step * (changes as u32 + 1)
    }

    /// How long after a change what happens is put down to it.
    pub(super) fn window(&self) -> Duration {
        Duration::from_secs(2).min(self.step / 2)
    }
}

/// Why a product's program cannot be replaced while it works, if it cannot.
pub(super) fn cannot_upgrade(product: &str) -> Option<&'static str> {
    match product {
        "traefik" => Some("Traefik has no way to hand its sockets to a new process"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routes_end_as_they_began_and_the_certificate_is_changed_apart_from_them() {
        let schedule = Schedule::new(Size::Full);
        let end = |part| schedule.changes(part).iter().fold(State::default(), |state, change| state.after(*change));
        assert_eq!(end(Part::Article), State::default());
        assert_eq!(end(Part::Further), State { second_certificate: true, ..State::default() });
        assert_eq!(schedule.changes(Part::Article).len(), 3 * 2 + 4);
        assert_eq!(schedule.length(10), Duration::from_secs(330));
    }

    #[test]
    fn route_changes_come_on_top_of_each_other() {
        let state = State::default().after(Change::Cors).after(Change::Header);
        assert_eq!(state.flags().map(|(_, on)| on), [false, true, true, false, true]);
        assert_eq!(state.after(Change::Base), State::default());
    }

    #[test]
    fn products_that_cannot_upgrade_make_every_other_change() {
        let schedule = Schedule::new(Size::Quick);
        assert_eq!(schedule.of("nginx", Part::Article), schedule.of("traefik", Part::Article));
        assert_eq!(schedule.of("equipoise", Part::Further), [Change::Certificate, Change::Upgrade]);
        assert_eq!(schedule.of("traefik", Part::Further), [Change::Certificate]);
    }
}
