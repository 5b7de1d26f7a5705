/**
 * Provides building blocks of configuration schemas. Each validates a value at load and carries the marks that the JSON
 * schema, the documentation, and the redaction of dumps need.
 */

import { z } from "zod";
import { isHeaderName } from "../base/header-names.ts";
import { compileExpression, ExpressionError } from "../cel/expression.ts";
import { unknownFields } from "../cel/values/unknown-fields.ts";
import { includesHeader, MESSAGE_HEADERS } from "../http/header-rules.ts";
import { isHeaderValue } from "../http/headers.ts";
import { parseAuthority } from "../http/host.ts";

/**
 * Compiles the CEL expression at load, so that a mistake fails the load and not a request. A field that no version has
 * is a mistake too, unless the expression tests it with `has()`.
 */
export function celSource(): z.ZodString {
  const schema = z.string().superRefine((source, context) => {
    try {
      const { paths, readings } = compileExpression(source);
      const { tested } = readings();
      const [unknown] = unknownFields([...paths].filter((path) => !tested.has(path)));
      if (unknown !== undefined) context.addIssue({ code: "custom", message: `cel: ${unknown}` });
    } catch (error) {
      if (!(error instanceof ExpressionError)) throw error;
      context.addIssue({ code: "custom", message: error.located });
    }
  });
  return markExpression(schema);
}

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const DURATION = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+$/;

export function duration() {
  return z
    .string("expected a duration such as 250ms, 10s, 5m or 1h30m")
    .regex(DURATION, "expected a duration such as 250ms, 10s, 5m or 1h30m")
    .transform((text) => {
      let ms = 0;
      for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g))
        ms += Number(amount) * (UNIT_MS[unit as string] as number);
      return ms;
    });
}

/** The output is the number of milliseconds, or the source of an expression. */
export function durationOrExpression() {
  return markExpression(
    z.string().superRefine((text, context) => {
      if (duration().safeParse(text).success) return;
      try {
        compileExpression(text);
      } catch (error) {
        if (!(error instanceof ExpressionError)) throw error;
        context.addIssue({ code: "custom", message: `expected a duration such as 500ms, or CEL: ${error.message}` });
      }
    }),
  ).transform((text): number | string => duration().safeParse(text).data ?? text);
}

/** Dumps, traces, and logs redact the value. */
export function secret() {
  return z.string().min(1).meta({ secret: true });
}

export function isSecretSchema(schema: z.ZodType): boolean {
  return schema.meta()?.secret === true;
}

export function headerName() {
  return z
    .string()
    .refine(isHeaderName, "not a valid HTTP header name")
    .transform((name) => name.toLowerCase());
}

export function headerValue() {
  return z.string().refine(isHeaderValue, "not a valid HTTP header value (no line breaks or control characters)");
}

/** Rejects headers that frame the message, because policies cannot change them. */
export function changeableHeaderName() {
  return headerName().refine(
    (name) => !includesHeader(MESSAGE_HEADERS, name),
    "this header frames the message and cannot be changed",
  );
}

export function isAuthority(text: string): boolean {
  return parseAuthority(text) !== undefined;
}

export function authority() {
  return z.string().refine(isAuthority, "expected a host name, optionally with a port");
}

/** `service` says whose address it is, for example `the picker's gRPC address`. */
export function hostAndPort(service: string) {
  const pattern = /^(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5}$/;
  return markAddress(z.string().regex(pattern, `expected host:port of ${service}`));
}

export function port() {
  return z.int().min(0).max(65_535);
}

export function httpUrl() {
  return z.string().refine((text) => {
    try {
      const url = new URL(text);
      return (url.protocol === "http:" || url.protocol === "https:") && url.username === "" && url.password === "";
    } catch {
      return false;
    }
  }, "expected an http or https URL without credentials");
}

export function serverUrl() {
  return markAddress(httpUrl());
}

/** `advice` tells how to get the effect of several of the fields. */
export function exactlyOneOf<Shape extends z.ZodRawShape>(
  schema: z.ZodObject<Shape>,
  keys: readonly string[],
  advice = "",
) {
  const checked = schema.superRefine((value, context) => {
    const present = keys.filter((key) => (value as Record<string, unknown>)[key] !== undefined);
    if (present.length === 1) return;
    const message = `use only one of ${fieldList(keys)}, found ${present.join(" and ")}${advice}`;
    context.addIssue({ code: "custom", ...(present.length === 0 ? missingChoice(keys) : { message }) });
  });
  return markExactlyOne(checked, keys);
}

/** Builds the error for an object that has none of the fields. `isMissingChoice` recognizes it. */
export function missingChoice(keys: readonly string[]): { message: string; params: Record<string, unknown> } {
  return { message: `one of ${fieldList(keys)} is required`, params: { isMissingChoice: true } };
}

function fieldList(keys: readonly string[]): string {
  return keys.map((key) => `\`${key}\``).join(", ");
}

export function isMissingChoice(issue: z.core.$ZodIssue): boolean {
  return issue.code === "custom" && issue.params?.isMissingChoice === true;
}

export interface LocalUse {
  /** Completes the error message "cannot name …". */
  readonly what:
    | "a file"
    | "a process"
    | "a unix socket"
    | "credentials of this machine"
    | "a Service by its name"
    | "a host by its address";
  /** Returns whether a value refers to the local machine. By default every value does. */
  readonly isLocal?: (value: unknown) => boolean;
  /** True if the file is read through `CompileEnv.readFile`, so that a reference to a Secret can replace it. */
  readonly isReadable?: boolean;
}

interface AddressUse {
  /** The gateway does not connect to the host if this field of the same object is set. */
  readonly unless?: string;
}

interface Marks {
  readonly address?: AddressUse;
  readonly local?: LocalUse;
  readonly exactlyOne?: readonly string[];
  readonly isExpression?: true;
}

const marks = z.registry<Marks>();

export function markLocal<Schema extends z.ZodType>(schema: Schema, local: LocalUse): Schema {
  (schema as z.ZodType).register(marks, { ...marks.get(schema), local });
  return schema;
}

export function markExactlyOne<Schema extends z.ZodType>(schema: Schema, exactlyOne: readonly string[]): Schema {
  (schema as z.ZodType).register(marks, { ...marks.get(schema), exactlyOne });
  return schema;
}

/** The gateway connects to the host in the value. Documents of a cluster cannot name every host. */
export function markAddress<Schema extends z.ZodType>(schema: Schema, address: AddressUse = {}): Schema {
  (schema as z.ZodType).register(marks, { ...marks.get(schema), address });
  return schema;
}

export function getAddressUse(schema: z.ZodType): AddressUse | undefined {
  return marks.get(schema)?.address;
}

/** In values of a marked schema, redaction inspects the constants of the CEL expression instead of assignments. */
function markExpression<Schema extends z.ZodType>(schema: Schema): Schema {
  (schema as z.ZodType).register(marks, { ...marks.get(schema), isExpression: true });
  return schema;
}

export function isExpressionSchema(schema: z.ZodType): boolean {
  return marks.get(schema)?.isExpression === true;
}

export function getLocalUse(schema: z.ZodType): LocalUse | undefined {
  return marks.get(schema)?.local;
}

export function exactlyOneOfFields(schema: z.ZodType): readonly string[] | undefined {
  return marks.get(schema)?.exactlyOne;
}

/** The file is read at compile time. */
export function filePath() {
  return markLocal(z.string().min(1), { what: "a file", isReadable: true });
}

/** The file is watched or read again later, so a Secret cannot replace it. */
export function watchedFilePath() {
  return markLocal(z.string().min(1), { what: "a file" });
}
