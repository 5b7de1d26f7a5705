/**
 * Finds fields that an expression reads but that no attribute has, such as `request.headerz`. A field that a rule tests
 * with `has()` may belong to another version.
 */
import { ATTRIBUTES } from "./attributes.ts";
import { suggestion } from "./nearest-name.ts";

interface Known {
  readonly fields: Map<string, Known>;
  /** True if the operator or the peer chooses the field names, as for claims and headers. */
  isOpen: boolean;
}

const KNOWN = knownFields();

export function unknownFields(paths: Iterable<string>): string[] {
  return [...paths].flatMap((path) => {
    const [root = "", ...segments] = path.split(".");
    let known = KNOWN.get(root);
    let read = root;
    for (const segment of segments) {
      if (known === undefined || known.isOpen) return [];
      const next = known.fields.get(segment);
      // The table does not list fields below scalars and lists, for example list indexes.
      if (next === undefined && known.fields.size === 0 && read !== root) return [];
      if (next === undefined)
        return [`${read} has no field ${JSON.stringify(segment)}${suggestion(segment, known.fields.keys())}`];
      known = next;
      read += `.${segment}`;
    }
    return [];
  });
}

function knownFields(): Map<string, Known> {
  const roots = new Map<string, Known>();
  for (const { name, fields } of ATTRIBUTES) {
    const root = entry(roots, name);
    for (const { path } of fields) {
      let at = root;
      for (const segment of path.split(".").slice(1)) {
        if (segment.startsWith("<")) at.isOpen = true;
        else at = entry(at.fields, segment);
      }
    }
  }
  return roots;
}

function entry(into: Map<string, Known>, name: string): Known {
  const known = into.get(name) ?? { fields: new Map(), isOpen: false };
  into.set(name, known);
  return known;
}
