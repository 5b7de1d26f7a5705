/**
 * Converts a JSON schema to rows of a reference page: the path, type and description of each field.
 */

/** One row per field that holds a value, with the path that leads to it; policies are a page of their own. */
export function rowsOf(schema, path, whole, depth = 0) {
  const node = resolved(schema, whole);
  if (depth > 7) return [];
  if (node.properties) {
    const required = new Set(node.required ?? []);
    return Object.entries(node.properties).flatMap(([key, field]) => {
      const at = path === "" ? key : `${path}.${key}`;
      const inner = resolved(field, whole);
      if (key === "policies")
        return [{ path: at, type: "policies", required: false, doc: "See [Policies](policies.md)." }];
      const own = { path: at, type: typeOf(inner, whole), required: required.has(key), doc: docOf(field, inner) };
      // The fields of a backend are documented once, under Backends.
      const isBackend = /(?:backends\[\]|^services\.<name>)$/.test(path);
      return isBackend ? [own] : [own, ...rowsOf(inner, at, whole, depth + 1)];
    });
  }
  if (node.type === "array" && node.items) return rowsOf(node.items, `${path}[]`, whole, depth + 1);
  if (typeof node.additionalProperties === "object" && Object.keys(node.additionalProperties).length > 0)
    return rowsOf(node.additionalProperties, `${path}.<name>`, whole, depth + 1);
  const branches = node.anyOf ?? node.oneOf;
  return branches ? branches.flatMap((branch) => rowsOf(branch, path, whole, depth + 1)) : [];
}

export function resolved(node, whole) {
  if (node.$ref === undefined) return node;
  const target = node.$ref
    .replace(/^#\//, "")
    .split("/")
    .reduce((at, key) => at?.[key], whole);
  return { ...target, ...(node.description === undefined ? {} : { description: node.description }) };
}

function typeOf(node, whole) {
  const branches = node.anyOf ?? node.oneOf;
  if (node.const !== undefined) return JSON.stringify(node.const);
  if (node.enum) return node.enum.map((value) => JSON.stringify(value)).join(", ");
  if (branches) return [...new Set(branches.map((branch) => typeOf(resolved(branch, whole), whole)))].join(" or ");
  if (node.type === "array") return node.items ? `list of ${typeOf(resolved(node.items, whole), whole)}` : "list";
  return { string: "text", integer: "whole number", boolean: "true or false" }[node.type] ?? node.type ?? "any";
}

function docOf(field, inner) {
  const text = field.description ?? inner.description ?? "";
  const byDefault = field.default ?? inner.default;
  const isSaid = /default/i.test(text) || byDefault === undefined;
  return isSaid ? text : `${text} Default: \`${JSON.stringify(byDefault)}\`.`;
}

export function table(rows) {
  if (rows.length === 0) return [];
  const unique = [...new Map(rows.map((row) => [`${row.path} ${row.doc}`, row])).values()];
  return [
    "| Field | Type | Required | Meaning |",
    "|---|---|---|---|",
    ...unique.map(
      ({ path, type, required, doc }) => `| \`${path}\` | ${cell(type)} | ${required ? "yes" : ""} | ${cell(doc)} |`,
    ),
  ];
}

export function cell(text) {
  return String(text).replaceAll("|", "\\|").replaceAll("\n", " ");
}
