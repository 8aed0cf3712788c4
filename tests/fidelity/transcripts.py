"""
All the transcripts: each module has those of one topic.
"""

import transcripts_of_absences
import transcripts_of_admission
import transcripts_of_builtins
import transcripts_of_controllers
import transcripts_of_conversions
import transcripts_of_definitions
import transcripts_of_deletions
import transcripts_of_expressions
import transcripts_of_lists
import transcripts_of_objects
import transcripts_of_oddities
import transcripts_of_patches
import transcripts_of_policies
import transcripts_of_requests
import transcripts_of_watches
import transcripts_of_webhooks

TRANSCRIPTS = (
    *transcripts_of_definitions.TRANSCRIPTS,
    *transcripts_of_objects.TRANSCRIPTS,
    *transcripts_of_builtins.TRANSCRIPTS,
    *transcripts_of_conversions.TRANSCRIPTS,
    *transcripts_of_patches.TRANSCRIPTS,
    *transcripts_of_expressions.TRANSCRIPTS,
    *transcripts_of_lists.TRANSCRIPTS,
    *transcripts_of_watches.TRANSCRIPTS,
    *transcripts_of_deletions.TRANSCRIPTS,
    *transcripts_of_requests.TRANSCRIPTS,
    *transcripts_of_webhooks.TRANSCRIPTS,
    *transcripts_of_controllers.TRANSCRIPTS,
    *transcripts_of_admission.TRANSCRIPTS,
    *transcripts_of_oddities.TRANSCRIPTS,
    *transcripts_of_policies.TRANSCRIPTS,
    *transcripts_of_absences.TRANSCRIPTS,
)
