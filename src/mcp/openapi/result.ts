/**
 * An API's response as the result of a tool: JSON as structured content and as text, images and sound as such, other
 * bytes only by their size. A status of 300 or more is an error that the model can read.
 */
import type { HeaderList } from "../../http/headers.ts";
import { jsonProblem } from "../../json/text-check.ts";

/** What a model is told of an error page. */
const MAX_ERROR_CHARS = 10_000;

/** Text of a `tools/call` result. */
export function toolResult(status: number, headers: HeaderList, body: Buffer): string {
  const type = (headers.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (status >= 300) return errorResult(status, headers, body);
  if (body.length === 0) return textResult(`The API answered with status ${status} and no content.`);
  if (/^application\/json$|\+json$/.test(type) || (type === "" && looksLikeJson(body))) {
    const text = body.toString();
    if (jsonProblem(text) !== undefined) return textResult(text);
    // As the API wrote it: numbers beyond 2^53 stay what they are.
    const structured = text.trimStart().startsWith("{") ? text : `{"result":${text}}`;
    return `{"content":[{"type":"text","text":${JSON.stringify(text)}}],"structuredContent":${structured}}`;
  }
  if (type.startsWith("image/") || type.startsWith("audio/")) {
    const kind = type.startsWith("image/") ? "image" : "audio";
    return JSON.stringify({ content: [{ type: kind, data: body.toString("base64"), mimeType: type }] });
  }
  if (type === "" || type.startsWith("text/") || /(?:xml|yaml|javascript|csv|x-www-form-urlencoded)/.test(type))
    return textResult(body.toString());
  return textResult(`The API answered with ${body.length} bytes of ${type}, which cannot be shown.`);
}

export function problemResult(text: string): string {
  return JSON.stringify({ content: [{ type: "text", text }], isError: true });
}

function errorResult(status: number, headers: HeaderList, body: Buffer): string {
  if (status < 400) return problemResult(`The API answered with a redirect (${status}), which is not followed.`);
  const said = body.toString().trim();
  const cut = said.length > MAX_ERROR_CHARS ? `${said.slice(0, MAX_ERROR_CHARS)}…` : said;
  const after = headers.get("retry-after");
  const text = `The API answered with status ${status}${after === undefined ? "" : ` (retry after ${after})`}${cut === "" ? "." : `: ${cut}`}`;
  return problemResult(text);
}

function textResult(text: string): string {
  return JSON.stringify({ content: [{ type: "text", text }] });
}

function looksLikeJson(body: Buffer): boolean {
  return body[0] === 0x7b || body[0] === 0x5b;
}
