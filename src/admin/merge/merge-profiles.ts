/**
 * Merges pprof profiles from several threads. Serialized Protocol Buffers messages can be concatenated, so merging only
 * offsets IDs and string indexes to avoid collisions. Each sample is labeled with its thread.
 */
import { gzipSync } from "node:zlib";
import { decompressAsync } from "../../base/decompress.ts";
import { peerInput } from "../../base/peer-inputs.ts";

type Reference = "string" | "location" | "function" | "mapping";
type Shape = { readonly [field: number]: Reference | Shape };

const LABEL: Shape = { 1: "string", 2: "string", 4: "string" };
const SAMPLE: Shape = { 1: "location", 3: LABEL };
const MAPPING: Shape = { 1: "mapping", 5: "string", 6: "string" };
const LOCATION: Shape = { 1: "location", 2: "mapping", 4: { 1: "function" } };
const FUNCTION: Shape = { 1: "function", 2: "string", 3: "string", 4: "string" };
/**
 * Maps field numbers of a profile to the repeated messages that are merged. The string tables of all profiles are
 * concatenated, and all other fields are taken from the first profile.
 */
const LISTS: Readonly<Record<number, Shape>> = { 2: SAMPLE, 3: MAPPING, 4: LOCATION, 5: FUNCTION };
const SAMPLES = 2;
const STRINGS = 6;
const SAMPLE_LABEL = 3;

const PROFILE = peerInput("admin-client/profile");
const VARINT = 0;
const BYTES = 2;

type Shifts = Record<Reference, bigint>;
interface Field {
  readonly number: number;
  readonly wire: number;
  readonly value: bigint | Uint8Array;
}

export async function mergeProfiles(profiles: readonly Uint8Array[]): Promise<Buffer> {
  const unpacked = await Promise.all(profiles.map((profile) => decompressAsync(PROFILE, profile, "gzip")));
  const shifts: Shifts = { string: 0n, location: 0n, function: 0n, mapping: 0n };
  const parts: Uint8Array[] = [];
  unpacked.forEach((profile, index) => {
    const fields = [...readFields(profile)];
    const strings = BigInt(fields.filter(({ number }) => number === STRINGS).length);
    const label = threadLabel(shifts.string + strings, index + 1);
    const highest: Shifts = { ...shifts };
    for (const field of fields) {
      const shape = LISTS[field.number];
      if (shape !== undefined && field.value instanceof Uint8Array) {
        const shifted = shiftedMessage(field.value, shape, shifts, highest);
        parts.push(encoded(field.number, field.number === SAMPLES ? Buffer.concat([shifted, label]) : shifted));
      } else if (field.number === STRINGS || index === 0) parts.push(encoded(field.number, field.value, field.wire));
    }
    parts.push(encoded(STRINGS, Buffer.from("thread")));
    Object.assign(shifts, highest, { string: shifts.string + strings + 1n });
  });
  return gzipSync(Buffer.concat(parts));
}

function threadLabel(key: bigint, thread: number): Buffer {
  return encoded(SAMPLE_LABEL, Buffer.concat([encoded(1, key), encoded(3, BigInt(thread))]));
}

function shiftedMessage(bytes: Uint8Array, shape: Shape, shifts: Shifts, highest: Shifts): Buffer {
  const shift = (reference: Reference, number: bigint): bigint => {
    // The ID 0 means that a location has no mapping or function.
    if (number === 0n && reference !== "string") return number;
    const shifted = number + shifts[reference];
    if (shifted > highest[reference]) highest[reference] = shifted;
    return shifted;
  };
  const parts = [...readFields(bytes)].map(({ number, wire, value }) => {
    const what = shape[number];
    if (what === undefined) return encoded(number, value, wire);
    if (typeof what === "object") return encoded(number, shiftedMessage(value as Uint8Array, what, shifts, highest));
    if (typeof value === "bigint") return encoded(number, shift(what, value));
    // A packed field contains several numbers.
    return encoded(number, Buffer.concat([...readVarints(value)].map((one) => varint(shift(what, one)))));
  });
  return Buffer.concat(parts);
}

function* readFields(bytes: Uint8Array): Iterable<Field> {
  const reader = { at: 0 };
  while (reader.at < bytes.length) {
    const key = Number(readVarint(bytes, reader));
    const [number, wire] = [key >>> 3, key & 7];
    if (wire === VARINT) {
      yield { number, wire, value: readVarint(bytes, reader) };
      continue;
    }
    if (wire !== BYTES) throw new Error("the profile has a field of an unknown type");
    const length = Number(readVarint(bytes, reader));
    const value = bytes.subarray(reader.at, reader.at + length);
    reader.at += length;
    yield { number, wire, value };
  }
}

function* readVarints(bytes: Uint8Array): Iterable<bigint> {
  const reader = { at: 0 };
  while (reader.at < bytes.length) yield readVarint(bytes, reader);
}

function readVarint(bytes: Uint8Array, reader: { at: number }): bigint {
  let value = 0n;
  for (let shift = 0n; ; shift += 7n) {
    const byte = bytes[reader.at++];
    if (byte === undefined) throw new Error("the profile is cut");
    value |= BigInt(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

function encoded(
  number: number,
  value: bigint | Uint8Array,
  wire = typeof value === "bigint" ? VARINT : BYTES,
): Buffer {
  const key = varint(BigInt((number << 3) | wire));
  if (typeof value === "bigint") return Buffer.concat([key, varint(value)]);
  return Buffer.concat([key, varint(BigInt(value.length)), value]);
}

function varint(value: bigint): Buffer {
  const bytes: number[] = [];
  let rest = value;
  do {
    const low = Number(rest & 0x7fn);
    rest >>= 7n;
    bytes.push(rest > 0n ? low | 0x80 : low);
  } while (rest > 0n);
  return Buffer.from(bytes);
}
