/**
 * Lists the differences between two configurations by listener, route, backend, and policy name.
 */

export interface Change {
  readonly what: "listener" | "route" | "backend" | "policy" | "config";
  readonly name: string;
  readonly change: "added" | "removed" | "changed";
  readonly parts: readonly string[];
}

type Dump = Readonly<Record<string, unknown>>;
type Item = Readonly<Record<string, unknown>>;

export function changesBetween(before: Dump, after: Dump): Change[] {
  return [
    ...compareLists("listener", before.listeners, after.listeners, ["routes"]),
    ...compareLists("route", before.routes, after.routes, []),
    ...compareLists("backend", before.backends, after.backends, []),
    ...compareLists("policy", resources(before), resources(after), ["status"]),
    ...(text(before.config) === text(after.config)
      ? []
      : [
          {
            what: "config" as const,
            name: "config",
            change: "changed" as const,
            parts: [...differingParts(asItem(before.config), asItem(after.config), []), "needs a restart"],
          },
        ]),
  ];
}

function compareLists(what: Change["what"], before: unknown, after: unknown, ignored: readonly string[]): Change[] {
  const old = byName(before);
  const next = byName(after);
  const changes: Change[] = [];
  for (const [name, item] of next) {
    const known = old.get(name);
    if (!known) changes.push({ what, name, change: "added", parts: [] });
    else {
      const parts = differingParts(known, item, ignored);
      if (parts.length > 0) changes.push({ what, name, change: "changed", parts });
    }
  }
  for (const name of old.keys()) if (!next.has(name)) changes.push({ what, name, change: "removed", parts: [] });
  return changes;
}

function differingParts(before: Item, after: Item, ignored: readonly string[]): string[] {
  const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...keys].flatMap((key) => {
    if (ignored.includes(key) || text(before[key]) === text(after[key])) return [];
    if (key !== "policies") return [key];
    return differingParts(asItem(before[key]), asItem(after[key]), []).map((kind) => `policies.${kind}`);
  });
}

function byName(list: unknown): Map<string, Item> {
  const items = Array.isArray(list) ? (list as Item[]) : [];
  return new Map(items.map((item) => [String(item.name ?? ""), item]));
}

/** GatewayPolicy documents have a name, which is in `metadata`. Inline policies have none and are omitted. */
function resources(dump: Dump): Item[] {
  const list = Array.isArray(dump.policies) ? (dump.policies as Item[]) : [];
  return list.flatMap((item) => {
    const metadata = item.metadata as { name?: unknown; namespace?: unknown } | undefined;
    return metadata ? [{ ...item, name: `${String(metadata.namespace ?? "")}/${String(metadata.name ?? "")}` }] : [];
  });
}

function asItem(value: unknown): Item {
  return typeof value === "object" && value !== null ? (value as Item) : {};
}

function text(value: unknown): string {
  return JSON.stringify(value) ?? "";
}
