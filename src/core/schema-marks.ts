/**
 * What a schema says beyond its shape: which values touch the gateway's own machine (documents of a cluster may not),
 * and of which fields exactly one is needed (a cluster's own schema says so too). The marks stay when a schema is
 * described or made optional.
 */
import { z } from "zod";

export interface LocalUse {
  /** As in "cannot name a file". */
  readonly what:
    | "a file"
    | "a process"
    | "a unix socket"
    | "credentials of this machine"
    | "a Service by its name"
    | "a host by its address";
  /** Whether this value does; without it, every value does. */
  readonly isLocal?: (value: unknown) => boolean;
  /** Its text is read through the environment of the compilation: a reference to a Secret can stand for the file. */
  readonly isReadable?: boolean;
}

interface Marks {
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

/** The value is a CEL expression: the redactor reads its constants, and not what looks like an assignment. */
export function markExpression<Schema extends z.ZodType>(schema: Schema): Schema {
  (schema as z.ZodType).register(marks, { ...marks.get(schema), isExpression: true });
  return schema;
}

export function isExpressionSchema(schema: z.ZodType): boolean {
  return marks.get(schema)?.isExpression === true;
}

export function localUseOf(schema: z.ZodType): LocalUse | undefined {
  return marks.get(schema)?.local;
}

export function exactlyOneOfFields(schema: z.ZodType): readonly string[] | undefined {
  return marks.get(schema)?.exactlyOne;
}

/** A path of a file that is read while compiling. */
export function filePath() {
  return markLocal(z.string().min(1), { what: "a file", isReadable: true });
}

/** A path of a file that is watched or read again later: only a real file will do. */
export function livingFilePath() {
  return markLocal(z.string().min(1), { what: "a file" });
}
