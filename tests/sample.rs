//! The main job on the sample: right tables, told by an independent fold, and nothing to do the second time.

use std::collections::BTreeMap;
use std::fs;

use crate::support::fold::{self, Folded, ORDER_COLUMNS, PRODUCT_COLUMNS};
use crate::support::program::workspace;
use crate::support::project::{Project, files_below};
use crate::support::rows::Rows;
use crate::support::summary::Summary;

/// What the sample comes to.
struct Expected {
    orders: Folded,
    web_orders: Folded,
    products: Folded,
}

impl Expected {
    fn of(project: &Project) -> Self {
        Self {
            orders: fold::orders(&project.landing().join("orders")),
            web_orders: fold::orders(&project.landing().join("web_orders")),
            products: fold::products(&project.landing().join("products")),
        }
    }
}

/// Fails unless every silver and gold table of the worked example is what its files say.
pub(crate) fn assert_right(project: &Project) {
    let expected = Expected::of(project);
    let both = [&expected.orders, &expected.web_orders];
    compare(project, "silver.orders", &ORDER_COLUMNS, expected.orders.rows(&ORDER_COLUMNS));
    compare(project, "silver.web_orders", &ORDER_COLUMNS, expected.web_orders.rows(&ORDER_COLUMNS));
    compare(project, "silver.products", &PRODUCT_COLUMNS, expected.products.rows(&PRODUCT_COLUMNS));
    compare(project, "gold.daily_sales", &["order_date", "orders", "revenue"], fold::daily_sales(&both));
    let by_status = fold::order_volume_by_status(&both);
    compare(project, "gold.order_volume_by_status", &["status", "orders", "volume"], by_status);
    compare(project, "gold.products_daily_copy", &PRODUCT_COLUMNS, expected.products.rows(&PRODUCT_COLUMNS));
}

fn compare(project: &Project, table: &str, columns: &[&str], expected: Vec<Vec<Option<String>>>) {
    assert!(!expected.is_empty(), "the fold expects nothing of {table}");
    let expected = Rows::new(columns, expected, &project.types(table));
    if let Some(difference) = project.rows(table, columns).difference(&expected) {
        panic!("{table}: {difference}");
    }
}

#[test]
fn the_committed_sample_is_what_the_generator_makes() {
    let made = Project::new("");
    made.orchestrator(&["sample", "landing"]).expect(0);
    let content = |root: &std::path::Path| -> BTreeMap<String, Vec<u8>> {
        let name = |path: &std::path::Path| path.strip_prefix(root).expect("a path below").display().to_string();
        files_below(root).iter().map(|path| (name(path), fs::read(path).expect("a file"))).collect()
    };
    let (made, committed) = (content(&made.landing()), content(&workspace().join("landing")));
    assert_eq!(made.keys().collect::<Vec<_>>(), committed.keys().collect::<Vec<_>>());
    for (name, bytes) in &made {
        assert!(*bytes == committed[name], "landing/{name} is not what `orchestrator sample` writes");
    }
}

#[test]
fn one_run_makes_right_tables_and_the_next_has_nothing_to_do() {
    let project = Project::example();
    let summary = project.run();
    assert_eq!(summary.status, "succeeded");
    assert_eq!(summary.task("bronze.orders_cdc").files, 24);
    assert_eq!(summary.task("gold.daily_sales").written, project.count("gold.daily_sales") as u64);
    assert_right(&project);
    assert_every_row_is_somewhere(&project, &summary);
    assert_reasons_name_the_value(&project);
    assert_the_query_prints_daily_sales(&project);
    let first_day = project.rows("gold.products_daily_snapshot", &["id", "_change"]);
    assert!(first_day.rows.iter().all(|row| row[1].as_deref() == Some("insert")));
    assert_eq!(first_day.rows.len() as i64, project.count("silver.products"));

    project.assert_settled();
    let tables = project.versions();
    for layer in ["bronze/", "silver/", "gold/", "quarantine/"] {
        assert!(tables.keys().any(|table| table.starts_with(layer)), "no table in {layer}: {tables:?}");
    }
}

/// Records of the files = bronze rows + refused by bronze; each refused one is in quarantine, once.
fn assert_every_row_is_somewhere(project: &Project, summary: &Summary) {
    let expected = Expected::of(project);
    let sources = [
        ("orders_cdc", "orders", &expected.orders),
        ("web_orders_cdc", "web_orders", &expected.web_orders),
        ("products_feed", "products", &expected.products),
    ];
    for (source, table, folded) in sources {
        let (bronze, silver) = (summary.task(&format!("bronze.{source}")), summary.task(&format!("silver.{table}")));
        assert_eq!(bronze.read as usize, folded.records, "records of {source}");
        assert_eq!(project.count(&format!("bronze.{source}")) as u64, bronze.appended, "bronze rows of {source}");
        assert_eq!(silver.read, bronze.appended, "rows that silver.{table} read");
        let quarantine = format!("quarantine.{source}");
        assert_eq!((bronze.quarantined + silver.quarantined) as usize, folded.refused, "refused rows of {source}");
        assert_eq!(project.count(&quarantine) as usize, folded.refused, "rows in {quarantine}");
        if folded.refused > 0 {
            let told = project.rows(&quarantine, &["reason", "_file_path", "_row_number"]);
            assert!(told.rows.iter().flatten().all(Option::is_some), "a refused row without reason or place: {told:?}");
        }
    }
    assert!(expected.orders.refused > 5 && expected.web_orders.refused > 2 && expected.products.refused == 0);
}

fn assert_reasons_name_the_value(project: &Project) {
    let rows = project.rows("quarantine.orders_cdc", &["column", "value", "reason"]);
    for (column, value) in [("amount", "12,5O"), ("order_date", "2024-13-45")] {
        let is_told = |row: &Vec<Option<String>>| {
            let [at, as_it_came, reason] = [&row[0], &row[1], &row[2]].map(|text| text.as_deref().unwrap_or_default());
            at == column && as_it_came == value && reason.contains(value)
        };
        assert!(rows.rows.iter().any(is_told), "`{value}` in `{column}` is not told: {:#?}", rows.rows);
    }
}

fn assert_the_query_prints_daily_sales(project: &Project) {
    let sql = "SELECT * FROM gold.daily_sales ORDER BY 1";
    let printed = project.orchestrator(&["query", sql, "--output", "csv"]).expect(0).stdout;
    let expected = Expected::of(project);
    let mut lines = vec!["order_date,orders,revenue".to_owned()];
    for row in fold::daily_sales(&[&expected.orders, &expected.web_orders]) {
        lines.push(row.into_iter().flatten().collect::<Vec<_>>().join(","));
    }
    assert_eq!(printed.trim_end(), lines.join("\n"));
}

#[test]
fn a_sample_of_another_size_is_right_too() {
    let spec = fs::read_to_string(workspace().join("pipelines.yaml")).expect("the worked example");
    let project = Project::new(&spec);
    project.orchestrator(&["sample", "landing", "--rows", "900", "--seed", "7"]).expect(0);
    project.run();
    assert_right(&project);
}
