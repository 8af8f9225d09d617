"""Names and headings of boxes on web pages: menus, consent, promotion, comments and others."""

import functools
import re
from enum import Enum

# Words in class names that identify a box outside the text. Two or three
# consecutive words may form one term.
_NAVIGATION = """
nav navs navbar navigation menu menubar navbox sidebar side-bar breadcrumb breadcrumbs crumbs toc
pagination pager pagenav footer masthead rail skip skip-link hatnote reflist prev-next next-prev
table-of-contents contents-list catlinks jump back-to-top to-top copyright legal-copy colophon
site-info site-notice ambox language-switcher linkback page-tools page-actions print-link edit-page
edit-link edit-this quick-links online-list jumpbox skiplink search-form search-box searchbox
"""
_CONSENT = """
cookie cookies consent gdpr ccpa banner modal popup overlay paywall privacy-banner cookie-law cmp
cc-window sp-message cybot cookiebot onetrust truste trustarc klaro iubenda osano axeptio
tarteaucitron evidon cmplz borlabs didomi usercentrics sourcepoint quantcast cookiescript cookieyes
moove termly announcement announcement-bar store-notice site-alert notification
"""
_PROMOTION = """
share shares sharing social addthis addtoany sharethis related recommended recommendations trending
read-next read-more up-next most-read most-popular more-stories more-posts next-stories recirc
recirculation upsell upsells cross-sell cross-sells also-like similar promo promotion promoted
sponsored sponsor sponsors ad ads adsense advert adverts advertising advertisement taboola outbrain
affiliate-disclosure newsletter newsletters subscribe subscription-box subscription-widget sign-up
signup opt-in optin email-signup bookmark-card recent-posts recent-entries popular-posts
also-viewed disclosure affiliate
"""
_PEOPLE = """
author-bio author-bios author-info author-profile about-author author-box author-card
author-description signature user-profile post-profile postprofile user-title user-info user-details
tag-list post-tags entry-tags post-categories post-meta entry-meta article-meta feedback helpful
article-votes comments comment-list comment-thread comment-respond respond disqus
"""
_NOT_SHOWN = """
sr-only screen-reader visually-hidden assistive assistive-text no-print noprint print-only
show-for-sr
"""
_BOX_WORDS = frozenset(
    " ".join((_NAVIGATION, _CONSENT, _PROMOTION, _PEOPLE, _NOT_SHOWN)).split()
)
COMMENT_WORDS = frozenset(
    {
        "comments",
        "comment-list",
        "comment-thread",
        "comment-respond",
        "respond",
        "disqus",
    }
)
# Words of boxes that are lists of links, and of windows in front of the page.
LIST_WORDS = frozenset(
    {"nav", "navs", "menu", "menubar", "toc", "skip", "jump"}
)
WINDOW_WORDS = frozenset({"modal", "popup", "overlay"})
# Neutral words that may accompany them. Any other word is from a heading, as in
# "related-work".
_OTHER_NAMES = """
area article articles bar block blocks blog body bottom box btn button buttons card cards carousel
col column comp component confirmation container content cover ctl desktop dialog doc docs dropdown
element embed entry external field fixed form full global grid group head header heading home hook
icons image info injected inline inner item items js large layer layout left link links list lists
main medium mega message messages mobile module modules more msg my new news notice our outer page
pages panel placeholder post posts primary product products question questions reader readers region
right root row sdk secondary section sections shell single site slot small space sticky stories
story tab tabs tag tags teaser text the theme this thread title toggle tool tools top topic topics
trail unit user users view views widget widgets window wp wrap wrapper your zone
"""
_BESIDE_NAMES = frozenset(_OTHER_NAMES.split())
# Words of classes that describe the state of a page, as in "has-sidebar".
_STATES = frozenset({"has", "is", "no", "not", "with", "without"})
_ADS = frozenset({"ad", "ads"})  # after the name of any program
# Words of a name in kebab, snake or camel case.
_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LONGEST_NAME = 100  # characters of a name
# shorter words are prefixes of programs, as in "hs-eu-cookie"
_FEWEST_LETTERS = 3

# Classes of the element that contains an article, between its title and the
# text after it.
BODY_NAME = re.compile(
    r"(?:[a-z]+[-_])*(?:entry|post|article|story|news|blog|item|node|page|main|wiki)[-_]{1,2}"
    r"(?:content|body|text|copy)(?:[-_]{1,2}[a-z]+){0,2}|e-content|markdown-body|mw-parser-output|"
    r"articlebody|storybody",
    re.IGNORECASE,
)
# Classes and labels of remarks, which belong to the text although they are
# marked up as asides.
NOTE_NAME = re.compile(
    r".*\b(?:admonition|callout|caution|danger|hint|important|information|note|notice|remark|tip|"
    r"topic|warning)\b.*",
    re.IGNORECASE,
)


class BoxHeading(Enum):
    """Kinds of boxes, by their heading."""

    LINKS = "links to other pages"
    COMMENTS = "comments of readers"
    REQUEST = "a request to users, such as to subscribe"


# Headings of boxes in lower case, with punctuation replaced by spaces (see
# ``heading_of_box``).
_OBJECTS = (
    r"articles?|content|coverage|entries|guides|items|links|news|pages|posts?|products?|questions?|"
    r"reading|recipes|results|stories|threads|topics?|videos"
)
_LINKS_HEADING = re.compile(
    r"(?:you|we|customers|readers|people|users|others)\b.{0,40}\b(?:like|love|enjoy|interested|"
    r"viewed|bought|purchased|read|searched|looked at|recommend)\b.{0,30}|"
    r"(?:more|also|latest|next) (?:from|in|on|by|about|to)\b.{0,40}|"
    rf"(?:more|related|similar|recommended|popular|recent|latest|next|trending)(?: {_OBJECTS})?|"
    r"(?:recommended|trending|similar|related) (?:for|from|in|on|by|content|products)\b.{0,40}|"
    r"(?:read|keep|continue|start)(?: \w+)? (?:more|next|also|reading|exploring)|up next|"
    r"most (?:popular|read|viewed|shared|recent|commented)|see also|what to read next|"
    r"explore (?:more|the topic)\b.{0,40}|articles in this section|quick links|on this page|"
    r"contents|table of contents|post navigation|tags|categories|filed under|resources"
)
_COMMENTS_HEADING = re.compile(
    r"(?:(?:all|top|reader|readers|user|\d+) ){0,2}comments?(?: \d+)?|"
    r"\d+ (?:responses?|replies|thoughts?\b.{0,80})|responses \d+|reader interactions|"
    r"leave a (?:reply|comment)|"
    r"(?:add|post|write) a(?: new)? comment|join the (?:discussion|conversation)|"
    r"discussion about this post|have your say"
)
_REQUEST_HEADING = re.compile(
    r"(?:subscribe|sign up|log ?in|sign in|register)(?: (?:to|for|now|today|here|form)\b.{0,40})?|"
    r".{0,30}newsletter|.{0,40}in your inbox|never miss .{0,30}|don t miss .{0,30}|"
    r"stay (?:in touch|informed|connected|up to date)|get (?:the|our) latest.{0,30}|"
    r"follow us.{0,30}|share(?: (?:this|on)\b.{0,30})?|ready for more|"
    r"(?:about|more from) (?:the )?authors?|author biograph(?:y|ies)|about me|written by .{0,40}|"
    r".{0,40}(?:cookies on|cookies? (?:settings|consent|policy|preferences|notice|banner)|"
    r"uses? cookies|agree to cookies)\b.{0,30}|"
    r"(?:was|is) this .{0,30}helpful|rate this .{0,30}|who is online|posting rules|how to cite|"
    r"rights and permissions|your answer"
)
_NUMBERED = re.compile(r"\s*\d+[.)]")  # a heading of a chapter
_BRACKETS_AND_MARKS = re.compile(r"\W+")


def heading_of_box(text: str) -> BoxHeading | None:
    """Returns the kind of box that a heading introduces; None for a heading of the text."""
    if _NUMBERED.match(text):
        return None
    words = _BRACKETS_AND_MARKS.sub(" ", text).strip().lower()
    for kind, pattern in (
        (BoxHeading.COMMENTS, _COMMENTS_HEADING),
        (BoxHeading.REQUEST, _REQUEST_HEADING),
        (BoxHeading.LINKS, _LINKS_HEADING),
    ):
        if pattern.fullmatch(words):
            return kind
    return None


@functools.lru_cache(maxsize=10_000)
def box_words(
    name: str, namespaces: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Returns the box words in a name; empty if the name contains words of a text.

    Args:
        name: class, id or label, such as "cookieConsentBanner",
            "related_articles" or "adslot-2".
        namespaces: words that are program prefixes at the beginning of a name.
    """
    words: list[str] = []
    for part in _NAME_WORD.findall(name[:_LONGEST_NAME]):
        words += _joined_words(part.lower()) or [part.lower()]
    if (
        words
        and words[-1] in _ADS
        and len(words) == 2
        and words[0] not in _STATES
    ):
        return frozenset(words[1:])
    if (
        len(words) > 1
        and words[0] in namespaces
        and words[0] not in _BESIDE_NAMES
    ):
        words = words[1:]
    result = set()
    position = 0
    while position < len(words):
        for size in (3, 2, 1):
            term = "-".join(words[position : position + size])
            if term in _BOX_WORDS:
                result.add(term)
                break
        else:
            size = 1
            word = words[position]
            is_prefix = len(word) < _FEWEST_LETTERS and word not in _STATES
            if not is_prefix and word not in _BESIDE_NAMES:
                return frozenset()
        position += size
    return frozenset(result)


@functools.lru_cache(maxsize=10_000)
def name_space(name: str) -> str | None:
    """Returns the first word of a class name of at least two words; None if it is a box word."""
    words = _NAME_WORD.findall(name[:_LONGEST_NAME])
    if len(words) < 2 or words[0] != words[0].lower() or words[0] in _STATES:
        return None
    return None if words[0] in _BOX_WORDS else words[0]


@functools.lru_cache(maxsize=10_000)
def _joined_words(word: str) -> list[str]:
    """Returns the two words of a compound such as "cookiebanner"; [] if it is not a compound."""
    if word in _BOX_WORDS or word in _BESIDE_NAMES:
        return [word]
    for end in range(2, len(word) - 1):
        first, second = word[:end], word[end:]
        if f"{first}-{second}" in _BOX_WORDS:
            return [first, second]
        is_first = first in _BOX_WORDS or first in _BESIDE_NAMES
        is_second = second in _BOX_WORDS or second in _BESIDE_NAMES
        if is_first and is_second:
            return [first, second]
    return []
