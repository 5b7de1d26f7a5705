/**
 * Formats validation errors with the position, the field, the problem, and the nearest valid name for a likely typo.
 */
import type { z } from "zod";
import { suggestion } from "../../cel/values/nearest-name.ts";
import { ConfigError } from "../../core/config-error.ts";
import { isMissingChoice, isSecretSchema } from "../../core/schema.ts";
import { type Path, pathText } from "../text/value-path.ts";
import { byPlace, type SourceDocument } from "../text/yaml-source.ts";
import { withEnvironmentTexts } from "./environment-values.ts";
import { objectHint, quotesHint, unknownFieldHint } from "./field-hints.ts";
import { knownKeys, schemaAt } from "./schema-walk.ts";
import { shapeHint } from "./shape-hints.ts";

type Issue = z.core.$ZodIssue;

export type Validated<Output> =
  | { readonly ok: true; readonly value: Output }
  | { readonly ok: false; readonly problems: readonly ConfigError[] };

export function validate<Schema extends z.ZodType>(
  schema: Schema,
  document: SourceDocument,
  value: unknown = document.value,
  base: Path = [],
): Validated<z.output<Schema>> {
  let parsed = schema.safeParse(value);
  if (!parsed.success) {
    const texts = withEnvironmentTexts(value, parsed.error.issues, document, base);
    if (texts !== undefined) parsed = schema.safeParse(texts);
  }
  if (parsed.success) return { ok: true, value: parsed.data };
  const { issues } = parsed.error;
  const problems = issues
    .filter((issue) => !isExplainedByUnknownField(issue, issues))
    .flatMap((issue) => problemsOf(issue, schema, document, base, value));
  return { ok: false, problems: unique(problems).sort(byPlace) };
}

/** If an object has an unknown field, that field is probably the misspelled choice, so one error is enough. */
function isExplainedByUnknownField(issue: Issue, issues: readonly Issue[]): boolean {
  const at = pathText(issue.path as Path);
  return (
    isMissingChoice(issue) &&
    issues.some((other) => other.code === "unrecognized_keys" && pathText(other.path as Path) === at)
  );
}

/** Limits the work for a file that is not a configuration. */
const MAX_UNKNOWN_FIELDS = 100;

function problemsOf(
  issue: Issue,
  schema: z.ZodType,
  document: SourceDocument,
  base: Path,
  root: unknown,
): ConfigError[] {
  const path = [...base, ...(issue.path as (string | number)[])];
  if (issue.code === "unrecognized_keys") {
    const known = knownKeys(schemaAt(schema, issue.path as Path));
    return issue.keys.slice(0, MAX_UNKNOWN_FIELDS).map(
      (key) =>
        new ConfigError(
          document.position([...path, key], "key"),
          pathText([...path, key]),
          // The key is valid in another variant of the same object.
          known.includes(key)
            ? `cannot be combined with ${siblingsOf(valueAt(root, issue.path as Path), key)}`
            : !issue.message.startsWith("Unrecognized key")
              ? issue.message
              : `unknown field${unknownFieldHint(key, schemaAt(schema, issue.path as Path))}`,
        ),
    );
  }
  if (issue.code === "invalid_union") return unionProblems(issue, schema, document, base, root);
  if (issue.code === "invalid_key")
    return [new ConfigError(document.position(path, "key"), pathText(path), issue.issues[0]?.message ?? issue.message)];
  const environment = document.fromEnvironment(path);
  if (environment?.text === "") {
    const [name, ...more] = environment.names;
    const message =
      more.length === 0
        ? `the environment variable ${name} is empty`
        : `the environment variables ${environment.names.join(", ")} are empty`;
    return [new ConfigError(document.position(path), pathText(path), message)];
  }
  return [
    new ConfigError(
      document.position(path),
      pathText(path),
      messageOf(issue, valueAt(root, issue.path as Path), schemaAt(schema, issue.path as Path)),
    ),
  ];
}

function siblingsOf(object: unknown, key: string): string {
  const others = Object.keys((object ?? {}) as object).filter((other) => other !== key);
  return others.map((other) => `\`${other}\``).join(", ");
}

/** For a union, reports the branch that fits the value's type and has the fewest errors. */
function unionProblems(
  issue: Extract<Issue, { code: "invalid_union" }>,
  schema: z.ZodType,
  document: SourceDocument,
  base: Path,
  root: unknown,
): ConfigError[] {
  const path = [...base, ...(issue.path as (string | number)[])];
  const value = valueAt(root, issue.path as Path);
  const rightType = issue.errors.filter(
    (branch) => !branch.some((one) => one.path.length === 0 && isOfOtherType(one, value)),
  );
  const branches = rightType.length > 0 ? rightType : issue.errors;
  const best = branches.reduce<readonly Issue[] | undefined>(
    (least, branch) => (least === undefined || branch.length < least.length ? branch : least),
    undefined,
  );
  if (best === undefined || rightType.length === 0) {
    const expected = issue.errors.flatMap((branch) =>
      branch.filter((one) => one.code === "invalid_type").map((one) => (one as { expected: string }).expected),
    );
    const values = issue.errors.flatMap((branch) =>
      branch
        .filter((one) => one.code === "invalid_value")
        .flatMap((one) => (one as { values: unknown[] }).values.map((value) => JSON.stringify(value))),
    );
    const wanted = [...new Set([...expected.map(typeName), ...values])].join(" or ");
    return [
      new ConfigError(document.position(path), pathText(path), wanted === "" ? issue.message : `expected ${wanted}`),
    ];
  }
  return best.flatMap((one) =>
    problemsOf({ ...one, path: [...issue.path, ...one.path] } as Issue, schema, document, base, root),
  );
}

/** A list of allowed strings fits no object, so its error would hide the error inside the object. */
function isOfOtherType(issue: Issue, value: unknown): boolean {
  if (issue.code === "invalid_type") return true;
  return issue.code === "invalid_value" && issue.values.every((one) => typeof one !== typeof value);
}

function messageOf(issue: Issue, value: unknown, schemas: readonly z.ZodType[]): string {
  if (issue.code === "invalid_type") {
    if (value === undefined) return "required field is missing";
    // A schema can have its own message, for example `expected a duration such as 10s`.
    if (!issue.message.startsWith("Invalid input")) return issue.message;
    // YAML parses an unquoted value of digits as a number, and `true` as a boolean.
    const hint = issue.expected === "string" && isQuotable(value) ? ": put it in quotes" : "";
    // YAML parses an API key of digits as a number, so the message shows its type and not its value.
    const found = schemas.some(isSecretSchema) ? `a ${typeof value}` : describeType(value);
    const shape = objectHint(issue.expected, value) || shapeHint(issue.path.at(-1), value, schemas);
    return `expected ${typeName(issue.expected)}, found ${found}${hint}${quotesHint(issue.expected, value)}${shape}`;
  }
  if (issue.code === "invalid_value") {
    const values = issue.values.map(String);
    const hint = typeof value === "string" ? suggestion(value, values) : "";
    if (value === undefined) return "required field is missing";
    // A schema can add its own advice.
    const advice = issue.message.startsWith("Invalid ") ? "" : `; ${issue.message}`;
    // The suggestion would be hard to find after a long list.
    if (hint !== "" && values.length > LISTED_VALUES) return `unknown value ${JSON.stringify(value)}${hint}${advice}`;
    return `expected ${values.map((one) => JSON.stringify(one)).join(" or ")}${hint}${advice}`;
  }
  if (issue.code === "too_small" && issue.origin === "array") return "must not be empty";
  if (issue.code === "too_small" && issue.origin === "string") return "must not be empty";
  if (issue.code === "too_small") return `must be at least ${issue.minimum}`;
  if (issue.code === "too_big" && (issue.origin === "number" || issue.origin === "int"))
    return `must be at most ${issue.maximum}`;
  return issue.message;
}

const LISTED_VALUES = 8;

/** A longer number may be an API key in the wrong field. */
const QUOTED_NUMBER_CHARS = 6;

function isQuotable(value: unknown): boolean {
  return typeof value === "number" || typeof value === "boolean";
}

function typeName(expected: string): string {
  return (
    {
      object: "an object",
      array: "a list",
      record: "an object",
      string: "a string",
      number: "a number",
      int: "a whole number",
      boolean: "true or false",
    }[expected] ?? expected
  );
}

function describeType(value: unknown): string {
  if (value === null) return "nothing (null)";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "an object";
  if (typeof value === "string") return "a string";
  const text = String(value);
  if (typeof value !== "number") return `the value ${text}`;
  return text.length > QUOTED_NUMBER_CHARS ? "a number" : `the number ${text}`;
}

function valueAt(root: unknown, path: Path): unknown {
  let value = root;
  for (const key of path) value = (value as Record<string | number, unknown> | null | undefined)?.[key];
  return value;
}

function unique(problems: readonly ConfigError[]): ConfigError[] {
  const seen = new Set<string>();
  return problems.filter((problem) => {
    const line = problem.toLine();
    return !seen.has(line) && seen.add(line);
  });
}
