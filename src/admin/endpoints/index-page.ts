/**
 * `/`: the list of endpoints, as HTML for a browser; made from the endpoints themselves.
 */
import type { AdminEndpoint } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function indexEndpoint(version: string, endpoints: readonly AdminEndpoint[]): AdminEndpoint {
  const rows = endpoints.map((endpoint) => {
    const methods = [endpoint.GET && "GET", endpoint.POST && "POST"].filter(Boolean).join(", ");
    const path = endpoint.GET ? `<a href="${endpoint.path}">${endpoint.path}</a>` : endpoint.path;
    return `<tr><td><code>${methods}</code></td><td><code>${path}</code></td><td>${escapeHtml(endpoint.doc)}</td></tr>`;
  });
  const body = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>gateway admin</title></head>
<body><h1>gateway ${escapeHtml(version)}</h1>
<table><thead><tr><th>methods</th><th>path</th><th>what it does</th></tr></thead><tbody>
${rows.join("\n")}
</tbody></table></body></html>
`;
  return {
    path: ADMIN_PATHS.index,
    doc: "This page.",
    GET: () => ({
      status: 200,
      type: "text/html; charset=utf-8",
      body,
      headers: { "content-security-policy": "default-src 'none'; frame-ancestors 'none'" },
    }),
  };
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
}
