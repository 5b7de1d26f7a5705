/**
 * Numbers in the query of an admin request: what is absent takes the default, what is out of range is refused with
 * the range, never silently replaced.
 */
import { type AdminAnswer, textAnswer } from "./endpoint.ts";

export interface NumberRange {
  readonly name: string;
  readonly min: number;
  readonly max: number;
  readonly default: number;
}

export type NumberParameter =
  | { readonly ok: true; readonly value: number }
  | { readonly ok: false; readonly refusal: AdminAnswer };

export function numberParameter(query: URLSearchParams, range: NumberRange): NumberParameter {
  const text = query.get(range.name);
  if (text === null) return { ok: true, value: range.default };
  const value = /^\d{1,12}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= range.min && value <= range.max) return { ok: true, value };
  return {
    ok: false,
    refusal: textAnswer(400, `${range.name} must be a whole number from ${range.min} to ${range.max}\n`),
  };
}
