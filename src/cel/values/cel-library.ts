/**
 * The functions of the CEL library that `values.ts` needs during an evaluation.
 */
import { type CelValue, celError } from "@bufbuild/cel";
import { isReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { TimestampSchema, timestampFromDate } from "@bufbuild/protobuf/wkt";

export { celError, isReflectMessage };

export function timestamp(date: Date): CelValue {
  return reflect(TimestampSchema, timestampFromDate(date));
}
