/**
 * Sorts the rows of a table by one of its columns.
 */
export interface Column<Row> {
  readonly title: string;
  readonly kind: "number" | "text";
  /** A column without values cannot be sorted by. Null is always last. */
  readonly value?: (row: Row) => number | string | null;
}

export interface Order {
  readonly title: string;
  /** Numbers are sorted in descending order, and text in ascending order. This reverses both. */
  readonly isReversed: boolean;
}

/** Rows with equal values keep their order. */
export function sortedRows<Row>(rows: readonly Row[], columns: readonly Column<Row>[], order: Order): Row[] {
  const column = columns.find(({ title }) => title === order.title);
  const value = column?.value;
  if (!column || !value) return [...rows];
  const sign = (column.kind === "number") === order.isReversed ? 1 : -1;
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  });
}
