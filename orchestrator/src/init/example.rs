//! The example of `orchestrator init`: a spec and the few records that it runs over.

/// Files below the landing zone and what is in them.
pub(crate) const FILES: [(&str, &str); 2] = [
    (
        "orders/2024-05-01.csv",
        "op,order_id,customer,order_date,status,amount,updated_at\n\
         I,1001,Ada,2024-05-01,New,120.50,2024-05-01T08:00:00Z\n\
         I,1002,Grace,2024-05-01,New,80.00,2024-05-01T08:30:00Z\n\
         I,1003,Edsger,2024-05-01,New,15.25,2024-05-01T09:10:00Z\n",
    ),
    (
        "orders/2024-05-02.csv",
        "op,order_id,customer,order_date,status,amount,updated_at\n\
         U,1001,Ada,2024-05-01,Paid,120.50,2024-05-02T10:00:00Z\n\
         D,1003,Edsger,2024-05-01,New,15.25,2024-05-02T10:05:00Z\n\
         I,1004,Barbara,2024-05-02,New,42.00,2024-05-02T11:00:00Z\n\
         I,1005,Tony,2024-05-02,New,much,2024-05-02T11:30:00Z\n",
    ),
];

/// The spec.
pub(crate) const SPEC: &str = r#"# A pipeline: change files land in ./landing, Delta tables come out in ./lakehouse.
#
#   orchestrator validate                      what is wrong with this file
#   orchestrator run                           everything that is new, through all layers
#   orchestrator query "SELECT * FROM silver.orders"
#   orchestrator watch                         the same whenever files arrive
#
# For files of your own: `orchestrator init --from FILE…|FOLDER` writes a spec about them. Every key: docs/SPEC.md

name: shop
storage: ./lakehouse                    # all tables live below; a path or a URL
landing: ./landing                      # where files arrive
timezone: UTC                           # says when a day begins, and what times without an offset mean

# Bronze keeps every record for ever, exactly as it was written.
bronze:
  orders:
    path: orders/                       # below landing
    format: csv                         # csv, json, parquet, avro; compression is told by itself

# Silver holds one typed row per key: the state after the newest change, in whatever order changes come.
silver:
  orders:
    source: orders
    op: {column: op, insert: [I], update: [U], delete: [D]}
    keys: [order_id]
    sequence_by: [updated_at]           # the larger wins; an older change that comes late changes nothing
    columns:                            # a value that does not fit sends its record to quarantine: 1005 has one
      order_id: bigint not null
      customer: string
      order_date: date
      status: string
      amount: decimal(18,2)
      updated_at: timestamp
    expectations:
      positive_amount: {check: amount >= 0, action: quarantine}

# Gold answers questions. The order of the work follows from the tables that a query names.
gold:
  daily_sales:
    query: |
      SELECT order_date, count(*) AS orders, sum(amount) AS revenue
      FROM silver.orders
      GROUP BY order_date
"#;
