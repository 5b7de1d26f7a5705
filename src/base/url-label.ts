/**
 * Formats a URL for a metric label, a log line, or an error. Omits the userinfo and the query, which may contain
 * credentials.
 */
export function urlLabel(url: string): string {
  if (!URL.canParse(url)) return "invalid URL";
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}
