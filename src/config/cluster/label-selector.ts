/**
 * Label selectors as Kubernetes has them. What is not understood selects nothing.
 */
import { fieldsOf, isObject, listOf, textOf } from "../text/value-shapes.ts";

export type Labels = Readonly<Record<string, string>>;

export function selects(selector: unknown, labels: Labels): boolean {
  if (!isObject(selector)) return false;
  const own = new Map(Object.entries(labels));
  const { matchLabels, matchExpressions } = selector;
  return (
    Object.entries(fieldsOf(matchLabels)).every(([key, value]) => own.get(key) === value) &&
    listOf(matchExpressions).every((expression) => holds(expression, own))
  );
}

function holds(expression: unknown, labels: ReadonlyMap<string, string>): boolean {
  const { key, operator, values } = fieldsOf(expression);
  const name = textOf(key);
  if (name === undefined) return false;
  const value = labels.get(name);
  const isListed = value !== undefined && listOf(values).includes(value);
  switch (operator) {
    case "In":
      return isListed;
    case "NotIn":
      return !isListed;
    case "Exists":
      return value !== undefined;
    case "DoesNotExist":
      return value === undefined;
    default:
      return false;
  }
}
