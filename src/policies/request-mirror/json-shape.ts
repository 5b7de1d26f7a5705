/**
 * Compares the shapes of two JSON values, which are their fields and types without the field values. The elements of an
 * array share one shape. The work is bounded, because the values come from backends.
 */

/** Values beyond this limit are not part of the shape. */
const MAX_SHAPE_VALUES = 10_000;
const MAX_SHAPE_DEPTH = 16;
const MAX_SHAPE_DIFFERENCES = 10;
const NAME_CHARS = 60;

interface Shape {
  readonly types: Set<string>;
  readonly fields: Map<string, Shape>;
  items: Shape | undefined;
}

export function shapeDifferences(before: unknown, after: unknown): string[] {
  const differences: string[] = [];
  compare(inferShape(before), inferShape(after), "$", differences);
  return differences.slice(0, MAX_SHAPE_DIFFERENCES);
}

function inferShape(root: unknown): Shape {
  let rest = MAX_SHAPE_VALUES;
  const add = (shape: Shape, value: unknown, depth: number): void => {
    if (rest <= 0) return;
    rest -= 1;
    if (value === null || typeof value !== "object") {
      shape.types.add(value === null ? "null" : typeof value);
      return;
    }
    shape.types.add(Array.isArray(value) ? "array" : "object");
    if (depth >= MAX_SHAPE_DEPTH) return;
    if (Array.isArray(value)) {
      for (const item of value) {
        shape.items ??= emptyShape();
        add(shape.items, item, depth + 1);
      }
      return;
    }
    for (const [name, field] of Object.entries(value)) {
      const known = shape.fields.get(name) ?? emptyShape();
      shape.fields.set(name, known);
      add(known, field, depth + 1);
    }
  };
  const shape = emptyShape();
  add(shape, root, 0);
  return shape;
}

function emptyShape(): Shape {
  return { types: new Set(), fields: new Map(), items: undefined };
}

function compare(before: Shape, after: Shape, path: string, differences: string[]): void {
  if (differences.length >= MAX_SHAPE_DIFFERENCES) return;
  const [was, is] = [formatTypes(before), formatTypes(after)];
  if (was !== is) {
    differences.push(`${path}: ${was} → ${is}`);
    return;
  }
  for (const [name, field] of before.fields) {
    const match = after.fields.get(name);
    if (match === undefined) differences.push(`${childPath(path, name)}: missing`);
    else compare(field, match, childPath(path, name), differences);
  }
  for (const name of after.fields.keys())
    if (!before.fields.has(name)) differences.push(`${childPath(path, name)}: added`);
  // An empty array has no item shape to compare.
  if (before.items && after.items) compare(before.items, after.items, `${path}[]`, differences);
}

function formatTypes({ types }: Shape): string {
  return [...types].sort().join(" or ");
}

function childPath(path: string, name: string): string {
  const shown = name.slice(0, NAME_CHARS);
  return /^[A-Za-z_$][\w$-]*$/.test(shown) ? `${path}.${shown}` : `${path}[${JSON.stringify(shown)}]`;
}
