/**
 * A table that the user sorts by its headers. Numbers start with the largest, names with the first.
 */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { param, withParams } from "../frame/router.ts";
import { visible } from "./format.ts";
import { type Column, type Order, sortedRows } from "./sort-rows.ts";

export interface ShownColumn<Row> extends Column<Row> {
  cell(row: Row): ComponentChildren;
  readonly class?: string;
}

export function SortedTable<Row>({
  columns,
  rows,
  keyOf,
  start,
  limit,
  isSelected,
}: {
  columns: readonly ShownColumn<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  /** The title of the column that the rows are sorted by at first. */
  start: string;
  limit?: number;
  isSelected?: (row: Row) => boolean;
}) {
  const [order, setOrder] = useState<Order>({ title: start, isReversed: false });
  return (
    <table>
      <thead>
        <tr>
          {columns.map((column) => (
            <Header key={column.title} column={column} order={order} onSort={setOrder} />
          ))}
        </tr>
      </thead>
      <tbody>
        {sortedRows(rows, columns, order)
          .slice(0, limit)
          .map((row) => (
            <tr key={keyOf(row)} class={isSelected?.(row) ? "selected" : ""}>
              {columns.map((column) => (
                <td key={column.title} class={column.class ?? (isNumeric(column) ? "number" : "")}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
      </tbody>
    </table>
  );
}

/**
 * Returns a column of names from traffic. An empty name is shown as "none". With `select`, a name is a link that selects
 * its row with this parameter of the URL, or clears the selection.
 */
export function nameColumn<Row>(title: string, name: (row: Row) => string, select?: string): ShownColumn<Row> {
  const linked = (text: string, parameter: string) => {
    const isSelected = param(parameter) === text;
    return (
      <a href={withParams({ [parameter]: isSelected ? "" : text })} aria-current={isSelected ? "true" : undefined}>
        {visible(text)}
      </a>
    );
  };
  return {
    title,
    kind: "text",
    class: "mono",
    value: name,
    cell: (row) => {
      const text = name(row);
      if (text === "") return <span class="muted">none</span>;
      return select === undefined ? visible(text) : linked(text, select);
    },
  };
}

function Header<Row>(props: { column: ShownColumn<Row>; order: Order; onSort: (order: Order) => void }) {
  const { column, order, onSort } = props;
  const { title, value } = column;
  if (value === undefined)
    return (
      <th scope="col">
        <span class="unseen">{title}</span>
      </th>
    );
  const isSorted = title === order.title;
  const isDescending = isNumeric(column) !== order.isReversed;
  return (
    <th
      scope="col"
      class={isNumeric(column) ? "number" : ""}
      aria-sort={!isSorted ? undefined : isDescending ? "descending" : "ascending"}
    >
      <button
        type="button"
        class="sort"
        onClick={() => onSort({ title, isReversed: isSorted ? !order.isReversed : false })}
      >
        {title}
      </button>
    </th>
  );
}

function isNumeric<Row>({ kind }: ShownColumn<Row>): boolean {
  return kind === "number";
}
