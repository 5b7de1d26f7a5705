/**
 * The lines that the odd server writes: responses, notifications, and results of any size.
 */

export interface Message {
  readonly id?: string | number;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly result?: unknown;
  readonly error?: unknown;
}

export function notify(method: string, params: object): void {
  send({ method, params });
}

export function text(id: string | number, value: string): void {
  result(id, { content: [{ type: "text", text: value }] });
}

/** A value of so many bytes that is never built as one here; `#` in a unit is its number. */
export function huge(id: string | number, value: { open: string; unit: string; close: string; bytes: number }): void {
  const units: string[] = [];
  for (let bytes = 0, i = 0; bytes < value.bytes; i++) {
    const unit = value.unit.replace("#", String(i));
    bytes += Buffer.byteLength(unit);
    units.push(unit);
  }
  const head = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{"content":[],"structuredContent":{"x":`;
  process.stdout.write(`${head}${value.open}${units.join("")}${value.close}}}}\n`);
}

export function result(id: string | number, value: object): void {
  // The id last, as the official SDK writes it; a number that JavaScript cannot hold stands in for such numbers.
  send({ result: value, id });
}

export function error(id: string | number, code: number, message: string): void {
  send({ id, error: { code, message } });
}

export function send(message: object): void {
  process.stdout.write(
    `${JSON.stringify({ jsonrpc: "2.0", ...message }).replaceAll('"BIG"', "9223372036854775807")}\n`,
  );
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
