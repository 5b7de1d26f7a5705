/**
 * Finds the schemas at a path of a document (several in a union) and the keys that they accept.
 */
import { z } from "zod";
import type { Path } from "../text/value-path.ts";

export function knownKeys(schemas: readonly z.ZodType[]): string[] {
  return schemas.flatMap((schema) => (schema instanceof z.ZodObject ? Object.keys(schema.shape) : []));
}

export function schemaAt(schema: z.ZodType, path: Path): z.ZodType[] {
  return path.reduce<z.ZodType[]>((current, key) => below(current, key), unwrap(schema));
}

export function below(schemas: readonly z.ZodType[], key: string | number): z.ZodType[] {
  return schemas.flatMap((one) => {
    if (one instanceof z.ZodObject) {
      const shape = one.shape as Record<string, z.ZodType>;
      const field = Object.hasOwn(shape, key) ? shape[key] : undefined;
      return field ? unwrap(field) : [];
    }
    if (one instanceof z.ZodArray) return unwrap(one.element as z.ZodType);
    if (one instanceof z.ZodRecord) return unwrap(one.valueType as z.ZodType);
    return [];
  });
}

export function unwrap(schema: z.ZodType): z.ZodType[] {
  if (
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodNullable ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodPrefault ||
    schema instanceof z.ZodReadonly
  ) {
    return unwrap(schema.unwrap() as z.ZodType);
  }
  if (schema instanceof z.ZodPipe) return unwrap(schema.in as z.ZodType);
  if (schema instanceof z.ZodUnion) return schema.options.flatMap((option) => unwrap(option as z.ZodType));
  if (schema instanceof z.ZodLazy) return unwrap(schema.unwrap() as z.ZodType);
  return [schema];
}
