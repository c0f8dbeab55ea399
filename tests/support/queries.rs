//! Random models: a grammar of the SQL that a refresh by groups covers.

use super::history::Dice;

const ZONES: [&str; 5] = ["America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "UTC", "America/Sao_Paulo"];
const OF_ORDERS: [&str; 6] =
    ["o.region", "o.cust", "o.id % 4", "CAST(o.at AT TIME ZONE '{zone}' AS DATE)", "upper(o.region)", "o.qty > 2"];
const OF_CUSTOMERS: [&str; 3] = ["c.country", "c.level", "coalesce(c.country, 'none')"];
const MADE: [&str; 15] = [
    "count(*)",
    "count(o.amount)",
    "sum(o.amount)",
    "min(o.at)",
    "max(o.region)",
    "avg(o.amount)",
    "count(DISTINCT o.region)",
    "sum(o.qty)",
    "median(o.qty)",
    "count(*) FILTER (WHERE o.qty > 0)",
    "sum(CASE WHEN o.region = 'north' THEN o.amount ELSE 0 END)",
    "sum(DISTINCT o.qty)",
    "avg(o.qty)",
    "avg(DISTINCT o.qty)",
    "array_agg(o.region ORDER BY o.region)",
];
const WHERE: [&str; 5] = [
    "o.amount > 2",
    "o.region <> 'south'",
    "o.qty IS NOT NULL",
    "o.cust IN (SELECT cid FROM silver.customers WHERE level > 1)",
    "NOT EXISTS (SELECT 1 FROM silver.customers x WHERE x.cid = o.cust AND x.level > 3)",
];
/// Conditions that a row without a customer meets.
const WITHOUT: [&str; 5] = [
    "c.cid IS NULL",
    "coalesce(c.country, 'none') = 'none'",
    "c.country IS DISTINCT FROM 'north'",
    "c.level > 2 OR c.level IS NULL",
    "c.cid IS NULL OR o.id IS NULL",
];
/// Queries of other forms: tables that are read twice, operations on sets, coalesced columns, conditions that are no equality.
const WRITTEN: [&str; 12] = [
    "WITH x AS (SELECT cust, region, qty FROM silver.orders WHERE qty > 0)\nSELECT a.cust AS g0, count(*) AS a0, max(b.region) AS a1 FROM x a JOIN x b ON a.cust = b.cust AND a.qty <= b.qty GROUP BY a.cust",
    "SELECT g0, count(*) AS a0, sum(v) AS a1 FROM (SELECT region AS g0, qty AS v FROM silver.orders UNION ALL SELECT country, level FROM silver.customers) t GROUP BY g0",
    "SELECT region AS g0 FROM silver.orders INTERSECT SELECT country FROM silver.customers",
    "SELECT region AS g0 FROM silver.orders EXCEPT SELECT country FROM silver.customers",
    "SELECT region AS g0 FROM silver.orders UNION SELECT country FROM silver.customers",
    "SELECT o.id AS g0, (SELECT max(c.country) FROM silver.customers c WHERE c.cid = o.cust) AS a0 FROM silver.orders o",
    "SELECT k AS g0, count(*) AS a0, max(level) AS a1, min(region) AS a2 FROM (SELECT cust AS k, region FROM silver.orders) o FULL JOIN (SELECT cid AS k, level FROM silver.customers) c USING (k) GROUP BY k",
    "SELECT c.country AS g0, {made} AS a0 FROM silver.orders o JOIN silver.customers c ON o.cust = c.cid OR o.qty = c.level GROUP BY c.country",
    "SELECT c.cid AS g0, count(*) AS a0 FROM silver.customers c JOIN silver.orders o ON o.cust BETWEEN c.cid - 1 AND c.cid + 1 GROUP BY c.cid",
    "SELECT nullif(lower(o.region), 'south') AS g0, CASE WHEN o.qty > 2 THEN 'many' WHEN o.qty > 0 THEN 'few' END AS g1, {made} AS a0 FROM silver.orders o GROUP BY 1, 2",
    "SELECT region AS g0, count(*) AS a0, max(times) AS a1 FROM (SELECT region, cust, count(*) AS times FROM silver.orders GROUP BY region, cust) t GROUP BY ALL",
    "SELECT date_trunc('month', o.at) AS g0, o.region || '-' || c.country AS g1, {made} AS a0 FROM silver.orders o LEFT JOIN silver.customers c ON o.cust = c.cid GROUP BY date_trunc('month', o.at), o.region || '-' || c.country HAVING count(*) < 9",
];
const JOINS: [&str; 5] = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT JOIN"];

/// A query, and the lines of the spec that name its keys where they do not follow from it.
pub(crate) fn model(dice: &mut Dice) -> (String, &'static str) {
    match dice.below(15) {
        0 => (per_key(dice), ""),
        1 => (format!("SELECT DISTINCT {} AS g0, o.qty AS g1\n{}", group(dice, false), from(dice, false)), ""),
        2 => (by_constant(dice), ""),
        3 => (of_groups(dice), ""),
        4 => (
            format!("SELECT o.id AS g0, o.region || '!' AS a0 FROM silver.orders o WHERE {}", pick(dice, &WHERE)),
            "    keys: [g0]\n",
        ),
        5 => (without(dice), ""),
        6 => two_sided(dice),
        7 => (distinct_groups(dice), ""),
        8 => (of_newest(dice), "    keys: [g0]\n"),
        9..=11 => (pick(dice, &WRITTEN).replace("{made}", pick(dice, &MADE)), ""),
        _ => (grouped(dice), ""),
    }
}

/// A query over a model of groups.
pub(crate) fn above(dice: &mut Dice, query: &str, number: usize) -> Option<String> {
    if !query.contains(" AS a0") || query.contains("array_agg") || !dice.chance(50) {
        return None;
    }
    Some(match dice.below(2) {
        0 => format!("SELECT g0, count(*) AS n, max(a0) AS most FROM gold.m{number} GROUP BY g0"),
        _ => {
            let text = "CAST(a0 AS STRING)";
            format!("SELECT {text} AS a0, count(*) AS n FROM gold.m{number} WHERE g0 IS NOT NULL GROUP BY {text}")
        }
    })
}

/// Aggregates by groups.
fn grouped(dice: &mut Dice) -> String {
    let has_customers = dice.chance(50);
    let groups: Vec<String> = (0..=dice.below(2)).map(|_| group(dice, has_customers)).collect();
    let shown = groups.iter().enumerate().map(|(number, group)| format!("{group} AS g{number}"));
    let made = (0..=dice.below(3)).map(|number| format!("{} AS a{number}", pick(dice, &MADE)));
    let columns: Vec<String> = shown.chain(made).collect();
    let having = if dice.chance(30) { "\nHAVING count(*) > 1" } else { "" };
    let from = from(dice, has_customers);
    format!("SELECT {}\n{from}\nGROUP BY {}{having}", columns.join(", "), groups.join(", "))
}

/// Rows of orders, each with its customer.
fn per_key(dice: &mut Dice) -> String {
    let day = group(dice, false);
    format!("SELECT o.id AS g0, {day} AS g1, c.country AS a0, o.amount * 2 AS a1\n{}", from_join(dice, "LEFT JOIN"))
}

/// Rows of orders, asked for what their customers lack.
fn without(dice: &mut Dice) -> String {
    let (from, wanted) = (from_join(dice, "LEFT JOIN"), pick(dice, &WITHOUT));
    format!("SELECT o.id AS g0, o.region AS a0, c.country AS a1\n{from} WHERE {wanted}")
}

/// Pairs that both sides tell apart, of one table or two.
fn two_sided(dice: &mut Dice) -> (String, &'static str) {
    let join = pick(dice, &JOINS);
    match dice.below(4) {
        0 => {
            let on = pick(dice, &["a.region = b.region", "a.cust = b.cust AND a.qty < b.qty", "a.cust = b.id"]);
            let query = "SELECT a.id AS g0, b.id AS g1, b.qty AS a0 FROM silver.orders a";
            (format!("{query} {join} silver.orders b ON {on}"), "")
        }
        1 => (
            format!(
                "SELECT o.id AS g0, c.cid AS g1 FROM silver.orders o {join} silver.customers c ON o.region = c.country"
            ),
            "",
        ),
        2 => (
            format!("SELECT o.id AS g0, c.cid AS g1, c.level AS a0\n{}", from_join(dice, join)),
            "    keys: [g0, g1]\n",
        ),
        _ => (format!("SELECT DISTINCT o.region AS g0, c.country AS g1\n{}", from_join(dice, join)), ""),
    }
}

/// What groups have in common.
fn distinct_groups(dice: &mut Dice) -> String {
    // Doubles and lists do not tell groups.
    let is_double = |made: &str| made.contains("o.qty)") && (made.starts_with("avg") || made.starts_with("median"));
    let told = MADE.map(|made| if is_double(made) || made.starts_with("array") { "count(o.qty)" } else { made });
    let (made, from) = (pick(dice, &told), from(dice, false));
    format!("SELECT DISTINCT {made} AS g0\n{from}\nGROUP BY {}", group(dice, false))
}

/// Groups that are told by an order of theirs.
fn of_newest(dice: &mut Dice) -> String {
    format!("SELECT max(o.id) AS g0, o.cust AS a0, count(*) AS a1\n{}\nGROUP BY o.cust", from(dice, false))
}

/// Branches that a constant tells apart.
fn by_constant(dice: &mut Dice) -> String {
    let branch = |dice: &mut Dice, name: &str| {
        let (group, made) =
            (group(dice, false).replace("o.qty > 2", "o.region").replace("o.cust", "o.id % 3"), pick(dice, &MADE[..2]));
        let group = format!("CAST({group} AS STRING)");
        format!("SELECT '{name}' AS g0, {group} AS g1, {made} AS a0 {} GROUP BY {group}", from(dice, false))
    };
    format!("{}\nUNION ALL\n{}", branch(dice, "one"), branch(dice, "two"))
}

/// Groups of groups, and groups joined with groups.
fn of_groups(dice: &mut Dice) -> String {
    let inner = "SELECT o.cust AS k, count(*) AS times, sum(o.amount) AS total FROM silver.orders o GROUP BY o.cust";
    match dice.below(3) {
        0 => format!("SELECT t.times AS g0, count(*) AS a0 FROM ({inner}) t GROUP BY t.times"),
        1 => format!(
            "SELECT c.cid AS g0, c.country AS g1, t.times AS a0 FROM silver.customers c {} ({inner}) t ON t.k = c.cid",
            pick(dice, &JOINS[..2])
        ),
        _ => format!(
            "SELECT o.region AS g0, max(t.times) AS a0 FROM silver.orders o JOIN ({inner}) t ON t.k = o.cust GROUP BY o.region"
        ),
    }
}

fn group(dice: &mut Dice, has_customers: bool) -> String {
    let groups = if has_customers && dice.chance(50) { &OF_CUSTOMERS[..] } else { &OF_ORDERS[..] };
    pick(dice, groups).replace("{zone}", pick(dice, &ZONES))
}

fn from(dice: &mut Dice, has_customers: bool) -> String {
    let mut from = match has_customers {
        true => {
            let join = pick(dice, &JOINS);
            from_join(dice, join)
        }
        false => "FROM silver.orders o".to_owned(),
    };
    if dice.chance(40) {
        from.push_str(&format!(" WHERE {}", pick(dice, &WHERE)));
    }
    from
}

fn from_join(dice: &mut Dice, join: &str) -> String {
    let more = if dice.chance(30) { " AND c.level > 0" } else { "" };
    format!("FROM silver.orders o {join} silver.customers c ON o.cust = c.cid{more}")
}

fn pick<'a>(dice: &mut Dice, items: &[&'a str]) -> &'a str {
    items[dice.below(items.len() as u64) as usize]
}
