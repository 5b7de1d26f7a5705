/**
 * One small page: no script, nothing from elsewhere, not to be framed or kept.
 */
import type { Reply } from "../../core/reply.ts";
import { HeaderList } from "../../http/headers.ts";

/**
 * `text` and `more` are HTML; the title is not. With the policy `no-referrer`, browsers would send `Origin: null` with the form, and
 * the form must name its origin.
 */
export function page(status: number, title: string, text: string, more = ""): Reply {
  const html = `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escaped(title)}</title><style>body{font:16px/1.5 system-ui;margin:15vh auto;max-width:32rem;padding:0 1rem}
button{font:inherit;padding:.5rem 1.5rem}</style><h1>${escaped(title)}</h1><p>${text}</p>${more}</html>\n`;
  return {
    status,
    headers: HeaderList.of({
      "content-type": "text/html; charset=utf-8",
      "cache-control": "no-store",
      "referrer-policy": "same-origin",
      "x-content-type-options": "nosniff",
      "content-security-policy":
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    }),
    body: Buffer.from(html),
    confidential: true,
  };
}

export function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
