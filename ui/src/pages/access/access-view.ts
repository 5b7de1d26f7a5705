/**
 * Selects and exports the results of an access review.
 */
import { csvCell } from "../../parts/csv.ts";

/** The fields of `POST /debug/access`. */
export interface AccessItem {
  readonly kind: string;
  readonly name: string;
  readonly listener: string;
  readonly route: string;
}

export interface AccessReason {
  readonly allowed: boolean;
  /** Locates the rule or the policy, for example `config.yaml:12:5`. */
  readonly at: string | null;
  readonly text: string;
}

export interface AccessReview {
  readonly principals: readonly {
    readonly name: string;
    readonly kind: string;
    readonly attributes: Readonly<Record<string, unknown>>;
  }[];
  readonly items: readonly AccessItem[];
  readonly reasons: readonly AccessReason[];
  /** `results[item][principal]` is an index into `reasons`. */
  readonly results: readonly (readonly number[])[];
  readonly notes: readonly string[];
}

export interface AccessRow {
  readonly item: AccessItem;
  /** One reason for each selected principal. */
  readonly reasons: readonly AccessReason[];
}

export interface AccessFilter {
  /** Text in `tool:server/name`, `route:name`, or `model:name`. */
  readonly item: string;
  /** Text in the name or in an attribute such as `team:research`. */
  readonly principal: string;
}

export function itemName({ kind, name }: Pick<AccessItem, "kind" | "name">): string {
  return `${kind}:${name}`;
}

export function selected(
  { principals, items, reasons, results }: AccessReview,
  filter: AccessFilter,
): { principals: AccessReview["principals"]; rows: AccessRow[] } {
  const wanted = filter.principal.trim().toLowerCase();
  const columns = principals.flatMap((principal, index) => (matches(principal, wanted) ? [index] : []));
  const text = filter.item.trim().toLowerCase();
  return {
    principals: columns.flatMap((index) => principals[index] ?? []),
    rows: items.flatMap((item, i) =>
      itemName(item).toLowerCase().includes(text)
        ? [{ item, reasons: columns.flatMap((column) => reasons[results[i]?.[column] ?? -1] ?? []) }]
        : [],
    ),
  };
}

function matches({ name, kind, attributes }: AccessReview["principals"][number], wanted: string): boolean {
  if (wanted === "") return true;
  const texts = [name, kind, ...Object.entries(attributes).map(([field, value]) => `${field}:${String(value)}`)];
  return texts.some((text) => text.toLowerCase().includes(wanted));
}

export function accessCsv(review: AccessReview): string {
  const { principals, items, reasons, results } = review;
  const lines = items.flatMap((item, i) =>
    principals.map((principal, column) => {
      const reason = reasons[results[i]?.[column] ?? -1];
      return [
        principal.name,
        principal.kind,
        itemName(item),
        item.route,
        reason?.allowed ? "yes" : "no",
        reason?.text ?? "",
      ];
    }),
  );
  return [["principal", "kind", "item", "route", "access", "why"], ...lines]
    .map((cells) => `${cells.map(csvCell).join(",")}\r\n`)
    .join("");
}

/** Splits `config.yaml:12:5` into the file and the line. */
export function placeOf(at: string | null): { readonly file: string; readonly line: string } | undefined {
  const [, file, line] = /^(.+):(\d+):\d+$/.exec(at ?? "") ?? [];
  return file === undefined || line === undefined ? undefined : { file, line };
}
