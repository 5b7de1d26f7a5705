/**
 * Every string field of the configuration's schema, with a marker planted in it: the marker may be shown only by the fields
 * that `test/golden/config/shown-fields.txt` lists, and a credential of a recognizable form by none. A new field fails the
 * test until its author marks it secret or adds it to the list.
 */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { stringify } from "yaml";
import { z } from "zod";
import { shownText } from "../src/admin/ui/shown-text.ts";
import { viewerResponse } from "../src/admin/ui/viewer.ts";
import { configSchema } from "../src/config/schema/schema.ts";
import { unwrap } from "../src/config/schema/schema-walk.ts";
import { secretsInConfig, shownConfig } from "../src/config/schema/shown-config.ts";
import { isExpressionSchema } from "../src/core/schema.ts";
import { createRedaction } from "../src/record/trace/redact.ts";

const LIST = fileURLToPath(new URL("../../test/golden/config/shown-fields.txt", import.meta.url));
/** No letters and digits together, so that only its field says whether it is a secret. */
const MARKER = "planted-marker";
const SECRET = "Zq9planted7Kx";

type Path = readonly (string | number)[];

interface Field {
  readonly path: Path;
  /** The same field of a policy stands at several scopes: it is listed once. */
  readonly name: string;
  readonly isFree: boolean;
  /** Credentials are constants in it. */
  readonly isExpression: boolean;
}

function* fieldsOf(schema: z.ZodType, path: Path, above: readonly z.ZodType[]): Generator<Field> {
  for (const one of unwrap(schema)) {
    if (above.includes(one) || path.length > 16) continue;
    const inside = [...above, one];
    if (one instanceof z.ZodObject) {
      for (const [key, field] of Object.entries(one.shape as Record<string, z.ZodType>))
        yield* fieldsOf(field, [...path, key], inside);
    } else if (one instanceof z.ZodArray) yield* fieldsOf(one.element as z.ZodType, [...path, 0], inside);
    else if (one instanceof z.ZodRecord) yield* fieldsOf(one.valueType as z.ZodType, [...path, "x-own"], inside);
    else if (
      one instanceof z.ZodString ||
      one instanceof z.ZodUnknown ||
      one instanceof z.ZodAny ||
      one instanceof z.ZodCustom
    )
      yield { path, name: nameOf(path), isFree: path.at(-1) === "x-own", isExpression: isExpressionSchema(one) };
  }
}

function nameOf(path: Path): string {
  const text = path.map((step) => (typeof step === "number" ? "[]" : step === "x-own" ? "*" : step)).join(".");
  return text.replaceAll(".[]", "[]").replace(/^.*\bpolicies\./, "policies.");
}

function valueAt(path: Path, value: unknown): unknown {
  return path.reduceRight<unknown>((inner, step) => (typeof step === "number" ? [inner] : { [step]: inner }), value);
}

const fields = [...fieldsOf(configSchema, [], [])];
const redaction = createRedaction();
const dumped = (path: Path, value: string): string =>
  JSON.stringify(shownConfig(configSchema, valueAt(path, value), redaction));
const written = (path: Path, value: string): string => shownText(stringify(valueAt(path, value)), redaction).text;

test("only the listed fields of the configuration show what is written in them [N20]", () => {
  const shown = new Set(fields.filter(({ path }) => dumped(path, MARKER).includes(MARKER)).map(({ name }) => name));
  const list = [...shown].sort().join("\n");
  if (process.env.UPDATE_GOLDEN === "1") writeFileSync(LIST, `${list}\n`);
  assert.ok(fields.length > 500, `${fields.length} fields`);
  assert.equal(list, readFileSync(LIST, "utf8").trim());
});

/** Credentials that are recognized wherever they stand. */
const FORMS: readonly ((secret: string) => string)[] = [
  (secret) => `https://user:${secret}@host.example/db`,
  (secret) => `https://host.example/a?any=${secret}`,
  (secret) => `sk-${secret}-${secret}`,
  (secret) => `eyJhbGciOiJIUzI1NiJ9.eyJ${secret}.${secret}`,
  (secret) => `-----BEGIN PRIVATE KEY-----\n${secret}`,
];

test("a credential of a known form is shown by no field, in the dump and in the configuration text [N20]", () => {
  let cases = 0;
  const planted = ({ isExpression }: Field, i: number): string => {
    const text = FORMS[i]?.(SECRET) ?? "";
    return isExpression ? JSON.stringify(text) : text;
  };
  for (const field of fields)
    for (const i of FORMS.keys()) {
      const shown = dumped(field.path, planted(field, i));
      cases += 1;
      assert.ok(!shown.includes(SECRET), `${field.name}, form ${i}: ${shown}`);
    }
  // The text takes longer: each field once, with the forms in turn.
  for (const [i, field] of [...new Map(fields.map((one) => [one.name, one])).values()].entries()) {
    const shown = written(field.path, planted(field, i % 4));
    cases += 1;
    assert.ok(!shown.includes(SECRET), `${field.name}: ${shown}`);
  }
  assert.ok(cases > 3_000, `${cases} cases`);
});

test("what a marked field holds is hidden everywhere else; a free-form name decides by itself [N20]", () => {
  for (const { path, name, isFree } of fields) {
    const isShown = dumped(path, SECRET).includes(SECRET);
    const found = secretsInConfig(configSchema, valueAt(path, SECRET), redaction);
    // A header of the operator's own may be a key: it is hidden, and not searched for elsewhere.
    if (!isShown && !isFree) assert.ok(found.includes(SECRET), name);
    if (isFree) assert.ok(!dumped([...path.slice(0, -1), "x-api-key"], SECRET).includes(SECRET), name);
  }
  const own = createRedaction();
  own.hideValues([SECRET]);
  assert.equal(own.text(`said ${SECRET}.`), "said <redacted>.");
});

test("a viewer sees no string of a policy, whatever field it stands in [N21]", () => {
  const answer = (dump: object) => ({ status: 200, type: "application/json", body: Buffer.from(JSON.stringify(dump)) });
  for (const { path, name } of fields) {
    if (!name.startsWith("policies.")) continue;
    const policies = shownConfig(configSchema, valueAt(path, MARKER), redaction) as Record<string, unknown>;
    const dump = {
      listeners: [{ name: "a", policies }],
      routes: [{ name: "b", policies }],
      policies: [{ kind: "c", policy: policies }],
    };
    const viewed = viewerResponse("/config_dump", answer(dump)).body.toString();
    assert.ok(!viewed.includes(MARKER), `${name}: ${viewed}`);
    assert.ok(viewed.includes('"name":"a"') && viewed.includes('"kind":"c"'));
  }
});
