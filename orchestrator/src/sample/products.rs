//! The daily full extract of the shop's products: prices and stock move, products vanish, come back and are new.

use std::path::Path;

use chrono::NaiveDate;
use lake::Result;

use super::dice::Dice;
use super::files::Output;
use super::order::{DAY, HOUR, MINUTE, Millis, price};
use super::record::{money, time};

const KINDS: [&str; 16] = [
    "Desk lamp",
    "Espresso cup",
    "Notebook",
    "Backpack",
    "Water bottle",
    "Headphones",
    "Keyboard",
    "Café grinder",
    "Wall clock",
    "Picture frame",
    "Rain jacket",
    "Bike light",
    "Cutting board",
    "Wool blanket",
    "Plant pot",
    "Monitor",
];
/// As people type them: with commas and quotes, which the CSV must quote.
const VARIANTS: [&str; 10] =
    ["black", "white", "oak", "large", "small", "0,5 l", "24\" model", "green, matt", "set of 4", "classic"];

struct Product {
    id: u64,
    name: String,
    stock: u64,
    cents: u64,
    updated_at: Millis,
    is_listed: bool,
}

/// All products of the shop, listed or not, by id.
pub(super) struct Catalog {
    dice: Dice,
    products: Vec<Product>,
}

impl Catalog {
    /// A shop with `count` products, as they are before `first_day`.
    pub(super) fn new(dice: Dice, count: u64, first_day: Millis) -> Self {
        let mut catalog = Self { dice, products: Vec::new() };
        for _ in 0..count {
            let age = catalog.dice.between(DAY / MINUTE, 90 * DAY / MINUTE);
            catalog.add(first_day - age * MINUTE);
        }
        catalog
    }

    /// One night: what changes before the morning's extract of the day that begins at `day`.
    pub(super) fn pass_night(&mut self, day: Millis) {
        let dice = &mut self.dice;
        for product in &mut self.products {
            let at = day + HOUR + dice.below(4 * 60) * MINUTE;
            if !product.is_listed {
                if dice.per_mille(120) {
                    product.is_listed = true;
                    product.cents = price(dice);
                    product.updated_at = at;
                }
                continue;
            }
            match dice.below(1000) {
                0..15 => product.is_listed = false,
                15..75 => {
                    product.cents = (product.cents * dice.between(85, 115) / 100).max(1);
                    product.updated_at = at;
                }
                75..420 => {
                    let sold = dice.between(1, 12);
                    product.stock = product.stock.checked_sub(sold).unwrap_or(120);
                    product.updated_at = at;
                }
                _ => {}
            }
        }
        if self.dice.per_mille(400) {
            self.add(day + 5 * HOUR);
        }
    }

    /// Writes the extract of a day into `folder` and says how many rows and bytes it has.
    pub(super) fn write(&self, folder: &Path, day: NaiveDate) -> Result<(u64, u64)> {
        let mut out = Output::create(folder, &format!("products_{day}.csv"))?;
        out.line("id,name,stock,price,updated_at")?;
        let mut rows = 0;
        for product in self.products.iter().filter(|product| product.is_listed) {
            let Product { id, stock, .. } = product;
            let (name, price) = (quoted(&product.name), money(product.cents));
            let at = time(product.updated_at, "%Y-%m-%dT%H:%M:%SZ");
            out.line(&format!("{id},{name},{stock},{price},{at}"))?;
            rows += 1;
        }
        Ok((rows, out.finish()?))
    }

    fn add(&mut self, at: Millis) {
        let id = self.products.len() as u64 + 1;
        let name = format!("{}, {}", self.dice.pick(&KINDS), self.dice.pick(&VARIANTS));
        let (stock, cents) = (self.dice.below(120), price(&mut self.dice));
        self.products.push(Product { id, name, stock, cents, updated_at: at, is_listed: true });
    }
}

/// A CSV field in quotes.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
