/**
 * What a body costs that is not read as an LLM call: by its size. Text is about 4 bytes per token. A picture of a
 * megabyte or a minute of sound is about a thousand tokens to those who take them. Of an encoded body nobody knows
 * how much it holds; text shrinks to about a quarter.
 */
import type { GatewayRequest } from "../../core/exchange.ts";

const TEXT_BYTES_PER_TOKEN = 4;
const MEDIA_BYTES_PER_TOKEN = 1024;
const ENCODED_BYTES_PER_TOKEN = 1;
const MEDIA = /^\s*(?:multipart\/form-data|image\/|audio\/|video\/)/i;

export function bytesPerToken({ headers }: Pick<GatewayRequest, "headers">): number {
  const coding = headers.get("content-encoding")?.toLowerCase() ?? "identity";
  if (coding !== "identity") return ENCODED_BYTES_PER_TOKEN;
  return MEDIA.test(headers.get("content-type") ?? "") ? MEDIA_BYTES_PER_TOKEN : TEXT_BYTES_PER_TOKEN;
}
