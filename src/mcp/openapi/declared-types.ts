/**
 * Checks that JSON has the types that the tool's schema declares. Rules read what is sent, but a server that converts
 * values could act on another one, for example on `"secret"` for `["secret"]`. Other keywords are left to the server.
 */
import { isObject, type Json } from "./document.ts";
import { ArgumentProblem } from "./value-shape.ts";

/** Alternatives can be nested, so the work is limited in sum. */
const MAX_CHECKS = 100_000;
const MAX_DEPTH = 400;

interface Mismatch {
  readonly types: readonly unknown[];
  readonly path: (string | number)[];
}

/** Throws `ArgumentProblem` if an argument has another type. */
export function checkDeclaredTypes({ properties, $defs: definitions }: Json, values: Json): void {
  let checks = 0;

  function mismatch(schema: unknown, value: unknown, depth: number): Mismatch | undefined {
    checks += 1;
    if (checks > MAX_CHECKS || depth > MAX_DEPTH)
      throw new ArgumentProblem("the arguments are too large or too deep for their types to be checked");
    if (!isObject(schema)) return undefined;
    if (typeof schema.$ref === "string") return mismatch(definition(definitions, schema.$ref), value, depth + 1);
    const types = schema.type === undefined ? [] : [schema.type].flat();
    if (types.length > 0 && !types.some((type) => hasType(type, value))) return { types, path: [] };
    if (Array.isArray(schema.allOf))
      for (const one of schema.allOf) {
        const found = mismatch(one, value, depth + 1);
        if (found) return found;
      }
    for (const list of [schema.anyOf, schema.oneOf]) {
      if (!Array.isArray(list) || list.length === 0) continue;
      let first: Mismatch | undefined;
      for (const one of list) {
        const found = mismatch(one, value, depth + 1);
        first ??= found;
        if (found === undefined) {
          first = undefined;
          break;
        }
      }
      if (first) return first;
    }
    if (Array.isArray(value)) return itemMismatch(schema, value, depth);
    return isObject(value) ? memberMismatch(schema, value, depth) : undefined;
  }

  function itemMismatch({ prefixItems, items }: Json, value: readonly unknown[], depth: number) {
    const first = Array.isArray(prefixItems) ? prefixItems : [];
    for (const [i, item] of value.entries()) {
      const found = mismatch(i < first.length ? first[i] : items, item, depth + 1);
      if (found) return { ...found, path: [i, ...found.path] };
    }
    return undefined;
  }

  function memberMismatch(schema: Json, value: Json, depth: number) {
    const known = isObject(schema.properties) ? schema.properties : {};
    const others = schema.patternProperties === undefined ? schema.additionalProperties : undefined;
    for (const [name, member] of Object.entries(value)) {
      const found = mismatch(Object.hasOwn(known, name) ? known[name] : others, member, depth + 1);
      if (found) return { ...found, path: [name, ...found.path] };
    }
    return undefined;
  }

  const declared = isObject(properties) ? properties : {};
  for (const [name, value] of Object.entries(values)) {
    const found = mismatch(Object.hasOwn(declared, name) ? declared[name] : undefined, value, 0);
    if (found) throw new ArgumentProblem(describe(name, found));
  }
}

function describe(argument: string, { types, path }: Mismatch): string {
  const place = path.length === 0 ? "" : ` at ${JSON.stringify(path.join("/").slice(0, 200))}`;
  return `the argument "${argument.slice(0, 100)}"${place} has another type than ${types.join(" or ")}`;
}

function definition(definitions: unknown, reference: string): unknown {
  const name = reference.slice("#/$defs/".length);
  return isObject(definitions) && Object.hasOwn(definitions, name) ? definitions[name] : undefined;
}

/** Types that JSON Schema does not have, such as `file`, allow everything. */
function hasType(type: unknown, value: unknown): boolean {
  switch (type) {
    case "string":
    case "boolean":
      return typeof value === type;
    case "number":
      return typeof value === "number";
    case "integer":
      return Number.isInteger(value);
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return isObject(value);
    default:
      return true;
  }
}
